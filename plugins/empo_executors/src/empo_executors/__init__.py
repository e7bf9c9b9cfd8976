"""Supervised worker processes: the executor ``local`` and parallel maps."""
