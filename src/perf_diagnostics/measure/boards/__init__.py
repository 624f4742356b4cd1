"""Devices and their boards: what they are, what they draw, hold and use."""
