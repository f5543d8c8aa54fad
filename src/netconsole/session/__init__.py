"""A measurement as its readers see it, and the live measurement of this host."""
