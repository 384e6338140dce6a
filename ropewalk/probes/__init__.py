"""Attention analysis: a trained model's queries and keys before rotation, and probes of them.

from ropewalk.experiment import load
from ropewalk.probes import capture

captured = capture(load("runs/demo/base=10,num_heads=4"), "def attend(query, key, value):")
captured.weights(layer=0)                                 # [B, N, T, S]
captured.logits(layer=0, rotary=rotary.parse("rope(base=1e4)"))    # the same q and k, rotated anew
view(captured, load("runs/demo/base=10,num_heads=4").tokenizer)  # an interactive page
"""

import functools
import pkgutil
from typing import TYPE_CHECKING

import ropewalk.probes.analyses
from ropewalk.utils.lazy import lazy
from ropewalk.utils.plugins import classes_in

if TYPE_CHECKING:
    from ropewalk.probes.probe import Probe

_MODULES = {
    "Capture": "capturing",
    "capture": "capturing",
    "Probe": "probe",
    "Subject": "subject",
    "View": "viewer.page",
    "view": "viewer.page",
}


# Invalid arguments need neither JAX nor matplotlib.
__getattr__ = lazy(__name__, _MODULES)


def names() -> list[str]:
    """List all probes without importing them: the names of the files of `probes.analyses`."""
    return [info.name for info in pkgutil.iter_modules(ropewalk.probes.analyses.__path__)]


@functools.cache
def all_probes() -> "dict[str, type[Probe]]":
    """Return all probes of `probes.analyses` by file name, in the order of the page."""
    from ropewalk.probes.probe import Probe

    classes = classes_in(ropewalk.probes.analyses, Probe)
    return dict(sorted(classes.items(), key=lambda item: item[1].order))
