"""What models of sound and images take, made from arrays: log-mel spectrograms and normalised pixels."""
