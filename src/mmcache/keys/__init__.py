"""Input → Key: canonical content, regions, signatures."""
