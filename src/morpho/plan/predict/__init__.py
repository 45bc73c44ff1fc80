"""Plans and their predictions: the closed form, quality metrics, and a discrete-event simulator."""
