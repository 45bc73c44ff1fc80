"""`device="auto"`: the CPU or a GPU for each program, by what both were measured to do; and which of several GPUs."""
