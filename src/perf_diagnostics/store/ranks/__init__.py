"""What the ranks of one training wrote, joined."""
