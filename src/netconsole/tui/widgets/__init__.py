"""Widgets that draw line by line, and send only the cells that changed."""
