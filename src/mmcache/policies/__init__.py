"""Deciders: who is evicted. Pure."""
