"""The report as slides."""
