"""Benchmarks of speed and memory, as ratios: `ropewalk bench NAME`, `cpu` or `gpu`."""
