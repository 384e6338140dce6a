"""What the speed claims rest on: `python -m benchmarks NAME`. Results are in README.md."""
