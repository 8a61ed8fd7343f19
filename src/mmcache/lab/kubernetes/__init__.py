"""A real Kubernetes API without machines: the API server and its controllers, and a kubelet that runs real processes.

No package has these servers, but Debian's source of Kubernetes 1.20 builds in a few minutes: `python -m
mmcache.lab.kubernetes` does it once and keeps the result outside the repository (`build`). `control_plane` starts them
on loopback. `kubelet` stands in for the machines: it binds pods to nodes, runs their commands as processes of this
machine, probes them, and ends them; nodes can fail and be drained. For the lab and for tests.
"""
