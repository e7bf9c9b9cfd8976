"""Certificates: guaranteed intervals for the value of a given robot policy."""
