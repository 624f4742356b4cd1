"""Several processes of one training: where they meet, and what they exchange."""
