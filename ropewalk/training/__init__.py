"""HOW a run is trained: what one update is, the members of a sweep, and the loop."""
