"""The scheduler of Python tasks: futures, work stealing, parallel map and reduce."""
