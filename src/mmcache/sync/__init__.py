"""The watcher of a database: change events from a broker move the editions of the rows that blocks rest on."""
