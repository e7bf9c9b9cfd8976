"""Gymnasium and PettingZoo environments of one world, and a window."""
