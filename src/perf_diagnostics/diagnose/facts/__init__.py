"""What records say, as typed numbers with intervals, or the reason why they do not."""
