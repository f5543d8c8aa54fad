"""Profiles: which probes to run, in which mode, and within which limits."""
