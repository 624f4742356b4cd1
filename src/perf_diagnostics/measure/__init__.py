"""Numbers as they come to be: `steps` on two clocks, `code` and operators looked at, `boards` and `host` sampled."""
