"""World files: their format, map codes, and what they compile to."""
