"""Which keys are hot, with which others, and for how long: a watcher. It reads events, and acts through `Cache`."""
