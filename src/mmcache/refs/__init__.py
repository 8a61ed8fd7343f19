"""Deciders: who needs whom. Pure."""
