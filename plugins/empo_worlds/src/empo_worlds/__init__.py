"""Tools for world models and their solvers: enumeration, expansion, sampling, row tables."""
