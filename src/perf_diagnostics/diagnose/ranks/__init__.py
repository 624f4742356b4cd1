"""Facts of trainings of several ranks: who waits, for whom, and what exchanges cost."""
