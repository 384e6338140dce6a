"""WHAT goes on inside: queries and keys of a trained model, and what they say of its frequencies.

from experiment import load
from probes import capture

inside = capture(load("runs/demo/base=10"), "def attend(query, key, value):")
inside.weights(layer=0)                                 # [B, N, T, S]
inside.logits(layer=0, rotary=rotary.parse("rope(base=1e4)"))    # the same q and k, turned else
view(inside, load("runs/demo/base=10").tokenizer)       # a page to look at, in a notebook too
"""

import functools

import probes.asked
from probes.inside import Capture, capture
from probes.probe import Probe
from probes.subject import Subject
from probes.viewer import View, view
from settings.folders import classes_in

__all__ = ["Capture", "Probe", "Subject", "View", "all_probes", "capture", "view"]


@functools.cache
def all_probes() -> dict[str, type[Probe]]:
    """Every probe by the name of its file in `probes.asked`, in the order of the page."""
    found = classes_in(probes.asked, Probe)
    return dict(sorted(found.items(), key=lambda each: each[1].order))
