"""How large a cache must be, from one process to a thousand GPUs: replays, and a paper model of the rest."""
