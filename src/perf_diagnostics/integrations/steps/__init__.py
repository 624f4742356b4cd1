"""How a loop that is not ours is cut into steps: a probe that follows it, and who ends a step."""
