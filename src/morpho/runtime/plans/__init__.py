"""From graphs to results: find or make the plan of a program, and run it."""
