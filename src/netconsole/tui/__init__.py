"""The console: a Textual application that reads a session and draws it."""
