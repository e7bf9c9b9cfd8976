"""Plugins: the hook they implement, how they are found, and the registry of components."""
