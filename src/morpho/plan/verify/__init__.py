"""The checker: verifies plans and their certificates; imports no solver."""
