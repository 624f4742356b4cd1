"""Numbers as they come to be: `steps` on two clocks, `code` looked at, `boards` and `host` sampled."""
