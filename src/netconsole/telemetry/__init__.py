"""The stream of frames, and the picture that it adds up to."""
