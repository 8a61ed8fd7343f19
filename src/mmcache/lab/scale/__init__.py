"""Trials of clusters that grow and shrink under load: real servers, the product's own controller, real faults.

`stand` brings a local cluster up and down, `watch` looks at it from outside, `trial` is one load with what is done
meanwhile, `reshard` and `burst` are the trials, `rival` does the same by the servers' own tool.
"""
