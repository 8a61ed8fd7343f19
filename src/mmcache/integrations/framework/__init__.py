"""What the doors of Python frameworks share, and no framework: whose entries, what a component is, results and vectors.

`realm.py` says whose entries they are; `described.py` what a component's configuration is (`code.py`: its code),
`signing.py` which model it is, `steady.py` when it was reconfigured; `vectors.py` keeps embeddings, `results.py`
whatever else was asked for, `held.py` lists and erases it.
"""
