"""A model cut into stages that run in processes of their own: text that is the same as that of one process."""
