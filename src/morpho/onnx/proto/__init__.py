"""ONNX files: a bounded reader and a writer of their wire format, tensors, and the model as plain records."""
