"""Records as files, and back."""
