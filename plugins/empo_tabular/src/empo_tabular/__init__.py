"""Explicit games: every state and transition is written down."""
