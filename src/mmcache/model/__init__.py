"""Nouns: keys, blocks, frames, signatures, events, errors. No I/O; imports nothing else of ours."""
