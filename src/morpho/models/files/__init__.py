"""Models from files and into them."""
