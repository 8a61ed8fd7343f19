"""Doers: block ↔ frame."""
