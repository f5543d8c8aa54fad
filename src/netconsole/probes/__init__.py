"""What a probe is: its manifest, its knobs, and where the probes are."""
