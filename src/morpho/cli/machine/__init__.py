"""What this machine has and how fast it is: `morpho doctor`, `bench`, `test-device`."""
