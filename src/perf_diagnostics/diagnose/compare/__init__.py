"""One run against another."""
