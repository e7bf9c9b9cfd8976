"""Disempower-Grid: an assistant, the user whom it helps, and a bystander."""
