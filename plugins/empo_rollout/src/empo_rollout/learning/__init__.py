"""From experience to better policies: losses, updates, and the loop around them."""
