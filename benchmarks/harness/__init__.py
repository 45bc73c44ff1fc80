"""What every suite runs on: worker processes, rounds of calls, results, reports, the stored baseline of ratios."""
