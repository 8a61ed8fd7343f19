"""The door to Kubernetes: the resource `MultimodalCache`, reconciled by `mmcache.scale`."""
