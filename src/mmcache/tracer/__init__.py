"""`tracer`: looks into a running process from the kernel, by eBPF."""
