"""The native driver: one compiled entry point that checks arguments and runs programs on threads."""
