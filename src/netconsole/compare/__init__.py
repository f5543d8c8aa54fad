"""What changed: a snapshot or a live measurement against a baseline (docs/comparison.md)."""
