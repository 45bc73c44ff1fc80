"""The server: Starlette's routes, who may ask, what is logged and counted, and how it starts and ends."""
