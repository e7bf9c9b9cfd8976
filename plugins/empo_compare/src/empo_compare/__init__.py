"""Runs side by side: a list of runs, and comparisons of their configs, results and policies."""
