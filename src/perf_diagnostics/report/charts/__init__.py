"""The charts of a report, as values."""
