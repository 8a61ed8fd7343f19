"""Lookups whose shape recurs, prepared: compiled plans, and CUDA graphs where there is a GPU."""
