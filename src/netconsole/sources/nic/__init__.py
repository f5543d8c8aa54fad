"""What network devices count by themselves (ethtool -S)."""
