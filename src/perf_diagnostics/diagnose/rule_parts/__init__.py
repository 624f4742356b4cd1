"""What several rules share: gains, advice, and answers about the same subject."""
