"""Morpho functions as ONNX files: a traced graph becomes nodes, captured tensors become initializers."""
