"""Puts a run together: what is checked, started and ended, with a screen or without."""
