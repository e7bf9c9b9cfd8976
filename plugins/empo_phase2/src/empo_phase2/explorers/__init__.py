"""Ways to explore: components of kind ``explorer``."""
