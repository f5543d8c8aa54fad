"""A running probe: its configuration, its programs, and the readings of its maps."""
