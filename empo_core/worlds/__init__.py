"""What world models and their solvers need: enumeration, expansion, sampling, row tables."""
