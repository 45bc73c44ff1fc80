"""The machine and its speed: `morpho doctor`, `bench`, `test-device`."""
