"""What changed: a snapshot or a live measurement against a baseline (docs/use/comparison.md)."""
