"""Which requests are the same: a parsed body → bytes that stand in a key, or why it may not be cached. Pure."""
