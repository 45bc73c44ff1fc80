"""`morpho run`: text from a model, for prompts and in conversation."""
