"""WHAT goes on inside: queries and keys of a trained model, and what they say of its frequencies.

from experiment import load
from probes import capture

inside = capture(load("runs/demo/base=10"), "def attend(query, key, value):")
inside.weights(layer=0)                                 # [B, N, T, S]
inside.logits(layer=0, rotary=rotary.parse("rope(base=1e4)"))    # the same q and k, turned else
"""

from probes.inside import Capture, capture
from probes.viewer import View, view

__all__ = ["Capture", "View", "capture", "view"]
