"""Copies of a world as environments: robots are paid for power, or humans for reaching goals."""
