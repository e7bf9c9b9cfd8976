"""What networks learn from: imagination, targets, losses."""
