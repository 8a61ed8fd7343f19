"""Answers by meaning: a question in other words, or about nearly the same picture, gets the stored answer: where the
cache has learned that it may.

`meaning.py` is the flow; `prompt.py` what is asked, part by part; `questions.py`, `shelves.py` and `gallery.py` find
stored questions; `populations.py` keeps what was learned; `ledger.py` (on `database.py`) all of it at rest.
"""
