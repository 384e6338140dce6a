"""Faults at every call of the file system; `python -m tests.faults --help` runs them."""
