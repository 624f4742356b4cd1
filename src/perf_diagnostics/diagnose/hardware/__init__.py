"""What the makers of devices promise, with their sources."""
