"""A load on a shared tier: processes that read and write blocks through the product's own tier, and check every byte.

`shape` says when requests come, `blocks` what they are about, `lane` makes them, `worker` is one process of lanes,
`crowd` starts the processes and adds up what they tell (`counts`). Open loop: a request's time is counted from when it
was to come, whatever the earlier ones did (G. Tene, "How not to measure latency", 2013).
"""
