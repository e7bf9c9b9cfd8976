"""Aggregators for empo: ``scatter-add``, and the plain ``loop`` it is tested against."""
