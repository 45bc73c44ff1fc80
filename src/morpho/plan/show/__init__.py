"""A plan for people: explanations and pictures."""
