"""WHAT a run carries besides the network: configuration, optimizer, checkpoints, metrics."""
