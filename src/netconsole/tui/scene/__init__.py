"""What a pane is drawn from."""
