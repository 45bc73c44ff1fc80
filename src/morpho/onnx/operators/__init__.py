"""The operators: a table for each family, written from the ONNX operator specification."""
