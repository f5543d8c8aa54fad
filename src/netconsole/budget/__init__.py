"""What watching may cost: forecast, measured, and kept (docs/design/governor.md)."""
