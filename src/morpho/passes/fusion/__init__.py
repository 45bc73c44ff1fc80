"""Which nodes become one kernel."""
