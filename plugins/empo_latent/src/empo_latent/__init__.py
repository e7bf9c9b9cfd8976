"""A decoder-free latent world model for EMPO, with imagined targets, policies and a planner."""
