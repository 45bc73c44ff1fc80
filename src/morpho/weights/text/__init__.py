"""Texts to token numbers and back: tokenizers, their files, chats."""
