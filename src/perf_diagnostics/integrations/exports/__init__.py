"""A run's records in the forms other tools read; each module knows one of them."""
