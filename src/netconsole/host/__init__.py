"""This machine: who it is, and what this process may do on it."""
