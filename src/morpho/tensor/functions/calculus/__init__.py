"""Numbers in a row: running extremes, sums under curves, lines between points, distances; and small arithmetic."""
