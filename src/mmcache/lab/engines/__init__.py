"""Inference engines as processes of their own, in their own virtual environment: only the laboratory starts them."""
