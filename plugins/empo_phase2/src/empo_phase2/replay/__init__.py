"""The replay: a ring of transitions with all their successors, every distinct state kept once."""
