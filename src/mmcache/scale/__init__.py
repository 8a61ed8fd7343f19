"""A Valkey cluster that grows with its load and shrinks again: the same decisions on one machine and on Kubernetes.

`spec` says what is wanted, `observed` what is there, `steps` what can be done, `status` what is told. Deciders are
pure: `bursts` and `sizing` say how many shards, `plan` says the one next step. Doers: `reconcile` looks, plans and acts
through a `platform`, which is processes of this machine (`local/`) or pods (`mmcache.operator`). No data passes through
here: blocks go from node to node by the cluster's own commands.
"""
