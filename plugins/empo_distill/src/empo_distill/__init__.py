"""Planner imitation for EMPO: move a policy towards an expert's distributions."""
