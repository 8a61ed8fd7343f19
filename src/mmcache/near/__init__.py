"""The nearest of many: float vectors by cosine, binary codes by Hamming distance. Exact, in process, no server."""
