"""The disk pane."""
