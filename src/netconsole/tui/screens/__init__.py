"""Screens: the main one, and those that open over it."""
