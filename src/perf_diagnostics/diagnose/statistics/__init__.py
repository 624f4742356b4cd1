"""What may be said of numbers that scatter: intervals, pairs, trends, repetition."""
