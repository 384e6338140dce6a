"""Predictions from a vector of inverse frequencies, without training."""
