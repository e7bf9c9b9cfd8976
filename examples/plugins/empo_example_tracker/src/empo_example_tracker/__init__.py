"""A tracker that writes metrics as CSV."""
