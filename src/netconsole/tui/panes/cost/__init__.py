"""The pane of what watching costs."""
