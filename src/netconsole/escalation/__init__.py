"""Details that start by themselves when a figure crosses a threshold."""
