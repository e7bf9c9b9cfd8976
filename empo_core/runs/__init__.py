"""Files that survive crashes and are read without trust: atomic writes, inputs, run directories."""
