"""Answers by meaning: a question in other words, or about nearly the same picture, gets the stored answer: where the
cache has learned that it may."""
