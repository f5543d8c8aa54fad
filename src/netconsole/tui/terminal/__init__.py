"""The terminal: what it can show, how fast its reader is, and how the console ends when it is gone."""
