"""Exact solving of a state graph that is cut into parts: on disk, or in several processes."""
