"""`hotkeys`: which keys are about to be asked for often, and for how long."""
