"""Pictures into sentences, with real models: DINOv2 → captions of drawings that look alike → SmolLM2-135M.

The picture stands in the prompt as words, so its share of the prompt has keys and values like any other. `model.py` has
the variants that table `vlm` compares; `worker.py` runs one of them in a process of its own.
"""
