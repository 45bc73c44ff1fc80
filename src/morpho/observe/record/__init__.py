"""Recording: the timed twin on and off, rings emptied, events made into rows of a trace."""
