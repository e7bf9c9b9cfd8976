"""The kitchens of Overcooked: a world model, a human prior, and an environment."""
