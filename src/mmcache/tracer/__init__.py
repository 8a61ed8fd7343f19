"""`tracer`: looks into a running process from the kernel, by eBPF.

`Trace` attaches to a process and reads what the kernel counted; `feedback` tells the traced process which keys are hot.
Linux, root (or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE), libbpf; everything else of mmcache does without.
"""

from mmcache.tracer.feedback import Hears, Marks
from mmcache.tracer.mark import Mark
from mmcache.tracer.trace import Trace

__all__ = ["Hears", "Mark", "Marks", "Trace"]
