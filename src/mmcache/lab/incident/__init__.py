"""`incident`: a night on which the hit rate fell for two reasons at once. Generated; nothing in it was measured."""
