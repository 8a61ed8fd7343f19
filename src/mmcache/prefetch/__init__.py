"""What is fetched before it is asked for: watchers that learn from visits and from media, and act through `Cache`."""

from mmcache.prefetch.work import Cancelled, cancelled

__all__ = ["Cancelled", "cancelled"]
