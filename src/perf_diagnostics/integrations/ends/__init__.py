"""How a training ends, and that its record is written whatever ends it."""
