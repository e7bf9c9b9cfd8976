"""Value functions as growable tables keyed by state rows, for empo."""
