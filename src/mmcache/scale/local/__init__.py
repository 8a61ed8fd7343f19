"""A cluster of processes of this machine: what runs them (`platform`), what watches them (`supervisor`), and what a
command does with both (`handle`).

Whether a member lives is asked of the kernel: a server holds its folder's lock as long as it runs, and is found by the
folder that it works in. No file says which process it is, so that none can be out of date and have a stranger killed.
"""

from mmcache.scale.local.handle import Handle, default_folder
from mmcache.scale.local.platform import LocalPlatform

__all__ = ["Handle", "LocalPlatform", "default_folder"]
