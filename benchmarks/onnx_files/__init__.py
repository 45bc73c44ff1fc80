"""ONNX: its own test cases, real networks, speed against ONNX Runtime, hostile files."""
