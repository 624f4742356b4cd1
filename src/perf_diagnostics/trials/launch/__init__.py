"""Starts trials in processes of their own, and watches them from outside."""
