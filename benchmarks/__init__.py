"""Benchmarks of speed and memory, as ratios: `python -m benchmarks NAME`, `cpu` or `gpu`."""
