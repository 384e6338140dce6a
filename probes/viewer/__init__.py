"""The attention viewer: one self-contained HTML file.

from ropewalk.probes import capture, view

text = "def attend(query, key, value):"
view({run.directory.name: capture(run, text) for run in runs}, runs[0].tokenizer).save("view.html")

As the last expression of a notebook cell, `view(...)` displays the page.
"""
