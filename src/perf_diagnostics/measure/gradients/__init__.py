"""What the first steps' gradients are like: who gets one, who uses it, and how much of it is zeros."""
