"""Manifests: a folder's files with their checksums."""
