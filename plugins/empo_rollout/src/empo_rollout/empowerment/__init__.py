"""Worlds with humans and robots: what robots are paid for, and what humans learn to want."""
