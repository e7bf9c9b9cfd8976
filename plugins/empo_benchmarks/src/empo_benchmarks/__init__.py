"""Worlds that others defined as benchmarks, built from their rules."""
