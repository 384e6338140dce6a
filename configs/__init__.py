"""One file per experiment, found by walking this folder; each defines `configs`, a list.

A config is Python: an ablation is a `dataclasses.replace`, so the difference is the experiment.
"""
