"""The generation engine: many requests at once, each with the tokens it has alone."""
