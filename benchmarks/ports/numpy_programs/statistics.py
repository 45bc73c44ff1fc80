"""A table of measurements: groups, ranks, histograms, running means."""
import numpy as np

values = np.round(np.abs(np.sin(np.arange(50) * 0.7)) * 10, 1)
groups = np.arange(50) % 4
names, counts = np.unique(groups, return_counts=True)
means = np.bincount(groups, weights=values) / counts
density, edges = np.histogram(values, bins=5, range=(0, 10), density=True)
ranks = values.argsort(kind="stable").argsort()
running = np.cumsum(values)
running = (running[5:] - running[:-5]) / 5
quartiles = np.percentile(values, [25, 50, 75])
z = (values - values.mean()) / values.std()
outliers = np.flatnonzero(np.abs(z) > 1.5)
table = np.concatenate([means, quartiles, [np.median(values), np.ptp(values), np.var(values, ddof=1)]])
result = [table, density, edges, ranks, running, outliers, np.diff(edges), np.interp(3.3, edges[:-1], density)]
