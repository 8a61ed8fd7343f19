"""Deciders: who is stored. Pure."""
