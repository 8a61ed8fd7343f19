"""Put on `PYTHONPATH` of engines."""
