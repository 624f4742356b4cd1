"""What is measured after a trial's timed steps, while its model still lives."""
