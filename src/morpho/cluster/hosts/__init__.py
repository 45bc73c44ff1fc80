"""Other machines: the file that names them, what is checked before anything starts, and what is measured."""
