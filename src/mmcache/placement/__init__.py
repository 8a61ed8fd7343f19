"""Where bytes lie: the paged arena."""
