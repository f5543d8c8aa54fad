"""The drops pane."""
