"""Many small launches of one kernel as one launch (multi-tensor kernels): steps of an optimiser, casts of weights."""
