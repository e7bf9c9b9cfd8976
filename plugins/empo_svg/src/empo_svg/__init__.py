"""Stochastic value gradients for EMPO: follow a critic's gradient through sampled actions."""
