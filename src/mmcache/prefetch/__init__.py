"""`prefetch`: what is computed before it is asked for, and when to stop doing so."""
