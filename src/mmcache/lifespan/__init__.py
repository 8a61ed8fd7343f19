"""How long a key stays hot: what a model is told of it, the model, and its file. Trainer and watcher share them."""
