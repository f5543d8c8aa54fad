"""What every room uses: figures as text, errors, reading and writing files."""
