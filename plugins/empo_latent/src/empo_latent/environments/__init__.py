"""Tasks behind one contract, and many of them at once."""
