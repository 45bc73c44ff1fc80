"""What a plan is and what it does: the closed-form prediction, quality metrics, and a discrete-event simulator."""
