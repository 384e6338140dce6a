"""Attention, looked at: one HTML file with everything inside.

from probes import capture, view

text = "def attend(query, key, value):"
view({run.directory.name: capture(run, text) for run in runs}, runs[0].tokenizer).save("view.html")

As the last line of a notebook's cell, `view(...)` shows itself.
"""

from probes.viewer.page import View, view

__all__ = ["View", "view"]
