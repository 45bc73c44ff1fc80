"""`morpho serve` and `morpho dashboard`: what answers in a browser or to clients."""
