"""Learned human empowerment, for empo."""
