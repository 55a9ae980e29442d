"""Measured beside plain Docker, in one run, as ratios: `python -m benchmarks`, one group: `-m benchmarks.call`."""
