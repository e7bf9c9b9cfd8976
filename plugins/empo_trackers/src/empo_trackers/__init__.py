"""Trackers: a run's metrics as JSON lines and TensorBoard events, its progress on the terminal."""
