"""Text from models: prompts, caches, choosing tokens, and what files say about it."""
