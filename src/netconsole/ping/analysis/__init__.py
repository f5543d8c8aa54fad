"""From captures to the breakdown: joined by echo, measured, checked, compared, and what to check then."""
