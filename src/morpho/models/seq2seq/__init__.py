"""Encoders with decoders: BART for text, Whisper for speech, and what they share."""
