"""What the probes cost on this host, measured in pairs with and without under load of our own (calibrate.md)."""
