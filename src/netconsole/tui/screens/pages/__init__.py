"""Pages above the main screen, which show one thing in full."""
