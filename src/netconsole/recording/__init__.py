"""Recordings: writes the frames of a session to a file, and replays them (docs/use/recording.md)."""
