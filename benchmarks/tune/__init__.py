"""The tuner, measured: what it gains, how near exhaustive search it comes, what exploring costs."""
