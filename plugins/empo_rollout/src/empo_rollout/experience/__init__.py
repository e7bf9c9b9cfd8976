"""Experience of a run: rollouts of segments, advantages, minibatches."""
