"""Explorers: bonuses for what is new, and sequences of movements."""
