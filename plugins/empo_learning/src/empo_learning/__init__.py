"""Shared parts of learners: the loop, checkpoints, schedules, regression, losses, saved models."""
