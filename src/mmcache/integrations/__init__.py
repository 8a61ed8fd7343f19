"""Doors into other people's frameworks, one module each; imported by nothing of ours. Each needs its own extra."""
