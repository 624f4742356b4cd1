"""Which lines of the user's own code time was seen in."""
