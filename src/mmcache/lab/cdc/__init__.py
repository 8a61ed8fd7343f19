"""The three stages of change data capture, each a real process that can be killed: PostgreSQL, Debezium, a broker."""
