"""What is put into torch to see a loop that is left as it is."""
