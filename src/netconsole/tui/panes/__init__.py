"""Panes: pure functions from the state to rows, and what each pane says about itself."""
