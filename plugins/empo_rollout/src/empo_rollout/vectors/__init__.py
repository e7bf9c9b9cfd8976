"""Vectorised environments behind one small contract."""
