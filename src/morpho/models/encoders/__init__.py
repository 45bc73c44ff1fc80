"""Encoders of text besides BERT: RoBERTa and DistilBERT, and the heads that all three may have."""
