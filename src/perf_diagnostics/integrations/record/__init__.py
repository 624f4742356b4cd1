"""The record of a training, kept and written while it goes on."""
