"""Large-batch rollout training: vectorised environments, segments, advantages, PPO."""
