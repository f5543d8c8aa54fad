"""Widgets drawn by the line: each sends only the cells that changed."""
