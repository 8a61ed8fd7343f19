"""Doers: where frames rest."""
