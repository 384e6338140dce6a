"""Attention analysis: a trained model's queries and keys before rotation, and probes of them.

from experiment import load
from probes import capture

inside = capture(load("runs/demo/base=10"), "def attend(query, key, value):")
inside.weights(layer=0)                                 # [B, N, T, S]
inside.logits(layer=0, rotary=rotary.parse("rope(base=1e4)"))    # the same q and k, rotated anew
view(inside, load("runs/demo/base=10").tokenizer)       # an interactive page, in notebooks too
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import functools

import probes.analyses
from probes.inside import Capture, capture
from probes.probe import Probe
from probes.subject import Subject
from probes.viewer import View, view
from utils.plugins import classes_in

__all__ = ["Capture", "Probe", "Subject", "View", "all_probes", "capture", "view"]


@functools.cache
def all_probes() -> dict[str, type[Probe]]:
    """Return all probes of `probes.analyses` by file name, in the order of the page."""
    classes = classes_in(probes.analyses, Probe)
    return dict(sorted(classes.items(), key=lambda item: item[1].order))
