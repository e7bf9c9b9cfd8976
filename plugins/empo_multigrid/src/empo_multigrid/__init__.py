"""Multi-agent gridworlds with exact, batched transition probabilities."""
