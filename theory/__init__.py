"""WHAT the papers predict of a vector of inverse frequencies, before anything is trained."""
