"""What was experienced: segments, advantages, minibatches."""
