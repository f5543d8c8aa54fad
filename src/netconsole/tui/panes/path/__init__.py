"""The pane of the host's path."""
