"""Explanations of decisions and comparisons of runs: a foundation of components."""
