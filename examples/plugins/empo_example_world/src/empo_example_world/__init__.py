"""A world with a lift."""
