"""Rollouts in world models: power rewards for robots, goal rewards for humans."""
