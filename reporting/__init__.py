"""WHAT a reader is shown: the parts of `report.py`."""
