"""Running a model: its values, the walk over its nodes, and the compiled callable around that."""
