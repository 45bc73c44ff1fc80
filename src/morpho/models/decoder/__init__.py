"""One decoder of text for many families: `shape.py` says how a family's model is built, `families/` read that out of
config.json, `layers.py` and `model.py` compute it."""
