"""What stands out, by the rules beside the probes."""
