"""What the doors of Python frameworks share, and no framework: whose entries, what a component is, results and vectors.

`realm.py` says whose entries they are, `described.py` what a component's configuration is, `vectors.py` keeps
embeddings, `results.py` whatever else was asked for, `held.py` lists and erases it.
"""
