"""Sweeps: many runs of one config, and what came of them."""
