"""Fewer states with the same values: symmetries, cones of influence, lumping."""
