"""The wizard for a ping: what was entered and measured, its pages, and the screen with them."""
