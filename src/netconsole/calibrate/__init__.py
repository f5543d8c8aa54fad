"""What the probes cost on this host, measured in pairs with and without, under our own load (docs/use/calibrate.md)."""
