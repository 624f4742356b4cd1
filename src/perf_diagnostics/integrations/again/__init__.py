"""A training script that is run again with a setting changed, though it knows nothing of it."""
