"""What truth is: semirings for derivations, connectives and quantifiers for formulas, both by name."""
