"""Value functions as neural networks, for empo."""
