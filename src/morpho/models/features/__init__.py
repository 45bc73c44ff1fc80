"""Inputs of models of sound and images, made from arrays: log-mel spectrograms and normalised pixels."""
