"""The language: terms and formulas, their text, and errors that point into it."""
