"""What watching may cost: forecast, measured, and kept (docs/governor.md)."""
