"""The model as a chain of layers: what each costs, and what crosses the cut after it."""
