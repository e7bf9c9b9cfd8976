"""States of the public implementation, here and back, and maps of MiniGrid."""
