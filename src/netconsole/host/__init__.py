"""This machine: its names, its load, and what this process may do on it."""
