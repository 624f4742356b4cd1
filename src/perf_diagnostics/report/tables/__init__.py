"""The tables of a report, as values."""
