"""What is fetched before it is asked for: watchers that learn from visits and from media, and act through `Cache`."""
