"""Networks that act, and the distributions they act by."""
