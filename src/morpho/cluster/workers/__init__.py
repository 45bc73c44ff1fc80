"""The processes of a pipeline: how they meet, serve, and go on when one of them dies."""
