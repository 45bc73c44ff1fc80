"""Operators of other domains: com.microsoft, ai.onnx.ml, training."""
