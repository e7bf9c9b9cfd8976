"""Tasks behind one contract: Gymnasium and DeepMind Control."""
