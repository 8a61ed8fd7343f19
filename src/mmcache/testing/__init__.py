"""Contract suites, strategies, fake clock and faults, for plug-in authors."""
