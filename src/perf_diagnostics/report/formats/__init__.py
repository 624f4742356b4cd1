"""The formats of a report, and the one place that writes them."""
