"""What loopfence costs, as ratios between things measured in one run: `python -m benchmarks`."""
