"""One probe a file: what it asks of a run, what it found, and how that is drawn."""
