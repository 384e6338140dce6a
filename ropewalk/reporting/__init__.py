"""Tables, figures and the HTML page of `report.py`, and the tables of `evaluate.py`."""
