"""The native entry of a compiled function: arguments, states, results."""
