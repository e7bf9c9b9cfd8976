"""What follows from a state and a joint action, with which probability."""
