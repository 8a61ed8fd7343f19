"""Deciders: how long. Pure."""
