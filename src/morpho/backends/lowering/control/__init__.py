"""Loops and branches as steps of a program, or as one kernel in registers."""
