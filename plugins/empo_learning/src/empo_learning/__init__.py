"""What learners share: the loop, checkpoints, schedules, regression, losses and saved models."""
