"""Advantage-weighted regression for EMPO: imitate the better ones of many candidate actions."""
