"""The side of the user: requests and tokens, plans for this machine, what was measured, moving while it runs."""
