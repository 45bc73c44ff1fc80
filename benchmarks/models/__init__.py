"""Models that several suites share, in numbers: names, shapes, weights from a seed, the answer in float64."""
