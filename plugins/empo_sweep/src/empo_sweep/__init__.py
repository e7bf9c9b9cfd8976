"""Sweeps: many runs of one config, and a comparison of their results."""
