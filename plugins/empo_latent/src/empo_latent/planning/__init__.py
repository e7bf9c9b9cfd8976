"""Acting by looking ahead: plans are tried in the model, and the best are refined."""
