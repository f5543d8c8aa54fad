"""The stream on disk, and how it is played again (docs/use/recording.md)."""
