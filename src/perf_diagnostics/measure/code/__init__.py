"""Looks at which lines of the user's own code a training stands in."""
