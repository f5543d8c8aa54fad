"""Hosts: this machine, and others over the system's ssh. Starts our Python programs there; nothing is installed."""
