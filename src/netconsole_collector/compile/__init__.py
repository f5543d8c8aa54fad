"""Compiles the source of a probe, loads and attaches its programs, in a process of its own."""
