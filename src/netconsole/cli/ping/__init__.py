"""The commands `ping …`."""
