"""States for networks: compact rows, pictures of channels, descriptions of things."""
