"""Tasks in other processes: messages with arrays in shared memory, workers, and who holds them."""
