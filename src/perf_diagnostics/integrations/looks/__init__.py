"""The looks at steps of the user's loop that do not count: when each is due, and what it told."""
