// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* What the kernel does while a process is traced: it counts reads by key, marks a key that becomes hot, and times what
   the process asks over its sockets. Python loads it (loader.py) and reads its maps (trace.py).

   Rebuild the object that the package brings: python -m mmcache.tracer.build */

#include <linux/types.h>
#include <linux/bpf.h>
#define __VMLINUX_H__ /* names of registers as the kernel has them */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs {
    unsigned long di, si, dx, cx, r8, ax, sp, bp, ip;
};
struct user_pt_regs {
    __u64 regs[31], sp, pc, pstate;
};
struct trace_event_raw_sys_enter {
    long id;
    unsigned long args[6];
};
struct trace_event_raw_sys_exit {
    long id, ret;
};
#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define KEY_BYTES 48
#define TIMES 128            /* times of the last reads of a key, a power of two */
#define UNIT 14              /* such a time is in 2^14 ns, 16 µs; 32 bits of it last 19 hours */
#define SECOND 61034         /* so many units apart is surely less than a second */
#define NANOSECONDS 1000000000ull

/* Laid out alike in layout.py. */

struct config {
    __u64 device, inode;     /* of the PID namespace that `pid` is of; 0 = the first one */
    __u32 pid;
    __u32 threshold;         /* hot: more reads a second than this, at most TIMES - 1 */
    __u32 listed;            /* 1: time the sockets in `listed_fds`; 0: time those over which Redis commands go */
    __u32 unused;
};

struct read_key {
    __u64 reads, hits;
    __u64 first, last;       /* ns, monotonic */
    __u64 delay_sum, delay_max; /* ns */
    __u64 hot_since;         /* ns, monotonic; 0 = it is not hot */
    __u32 waiting_max;
    __u32 run;               /* reads of which none was a second after the one before */
    __u32 times[TIMES];
};

struct mark {
    __u64 at, hash, reads, delay_max;
    __u64 waiting;
    __u8 key[KEY_BYTES];
};

struct socket_times {
    __u64 count, sum, max, last; /* ns from a request to the first bytes that come after it */
    __u64 log2[32];          /* how many took 2^n … 2^(n+1) microseconds */
};

struct totals {
    __u64 reads, hits, marks, marks_lost, keys_lost;
};

const volatile struct config config SEC(".rodata.config") = {};
static const struct read_key unread = {};
static const struct socket_times untimed = {};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, __u64);
    __type(value, struct read_key);
} keys SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 18);
} marks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct totals);
} totals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH); /* file descriptor → time of the request that waits for an answer */
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, __u64);
} asked SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH); /* thread → descriptor that it is reading from */
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, __u32);
} receiving SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH); /* by file descriptor */
    __uint(max_entries, 1024);
    __type(key, __u32);
    __type(value, struct socket_times);
} sockets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u32);
    __type(value, __u32);
} listed_fds SEC(".maps");

/* The thread, or 0 when it is none of the traced process. */
static __always_inline __u32 traced_thread(void)
{
    if (!config.device) {
        __u64 both = bpf_get_current_pid_tgid();
        return both >> 32 == config.pid ? (__u32)both : 0;
    }
    struct bpf_pidns_info who = {};
    if (bpf_get_ns_current_pid_tgid(config.device, config.inode, &who, sizeof who) || who.tgid != config.pid) return 0;
    return who.pid;
}

static __always_inline void mark_hot(struct read_key *seen, __u64 hash, const void *key, __u64 waiting,
                                     struct totals *total)
{
    struct mark *mark = bpf_ringbuf_reserve(&marks, sizeof *mark, 0);
    if (!mark) {
        __sync_fetch_and_add(&total->marks_lost, 1);
        return;
    }
    mark->at = seen->hot_since;
    mark->hash = hash;
    mark->reads = seen->reads;
    mark->delay_max = seen->delay_max;
    mark->waiting = waiting;
    if (bpf_probe_read_user(mark->key, KEY_BYTES, key)) __builtin_memset(mark->key, 0, KEY_BYTES);
    bpf_ringbuf_submit(mark, 0);
    __sync_fetch_and_add(&total->marks, 1);
}

/* More than `count` reads within the last second, the one at `unit` included: the one `count` before it is so young. */
static __always_inline int busy(struct read_key *seen, __u32 number, __u32 count, __u32 unit)
{
    if (number < count) return 0;
    return unit - seen->times[(number - count) & (TIMES - 1)] <= SECOND;
}

SEC("uprobe")
int BPF_KPROBE(read_probe, __u64 hash, const void *key, __u64 delay, __u64 waiting, __u64 hit)
{
    __u32 zero = 0;
    struct totals *total = bpf_map_lookup_elem(&totals, &zero);
    if (!traced_thread() || !total) return 0;
    __sync_fetch_and_add(&total->reads, 1);
    __sync_fetch_and_add(&total->hits, hit);
    __u64 now = bpf_ktime_get_ns();
    struct read_key *seen = bpf_map_lookup_elem(&keys, &hash);
    if (!seen) {
        bpf_map_update_elem(&keys, &hash, &unread, BPF_NOEXIST);
        seen = bpf_map_lookup_elem(&keys, &hash);
        if (!seen) {
            __sync_fetch_and_add(&total->keys_lost, 1);
            return 0;
        }
        seen->first = now;
    }
    if (now - seen->last >= NANOSECONDS) {
        seen->run = 0;
        seen->hot_since = 0;
    }
    seen->last = now;
    __u32 number = seen->run++;
    __u32 unit = now >> UNIT;
    seen->times[number & (TIMES - 1)] = unit;
    __sync_fetch_and_add(&seen->reads, 1);
    __sync_fetch_and_add(&seen->hits, hit);
    __sync_fetch_and_add(&seen->delay_sum, delay);
    if (delay > seen->delay_max) seen->delay_max = delay;
    if (waiting > seen->waiting_max) seen->waiting_max = waiting;
    __u32 threshold = config.threshold & (TIMES - 1);
    if (seen->hot_since) { /* until it falls to half of that: a key at the threshold is not marked again and again */
        if (!busy(seen, number, threshold / 2, unit)) seen->hot_since = 0;
    } else if (busy(seen, number, threshold, unit)) {
        seen->hot_since = now;
        mark_hot(seen, hash, key, waiting, total);
    }
    return 0;
}

static __always_inline int request(unsigned long fd, const void *buffer)
{
    if (!traced_thread()) return 0;
    __u32 one = fd;
    if (config.listed) {
        if (!bpf_map_lookup_elem(&listed_fds, &one)) return 0;
    } else { /* a Redis command begins with `*`, and how many words it has */
        char start[2] = {};
        if (bpf_probe_read_user(start, sizeof start, buffer)) return 0;
        if (start[0] != '*' || start[1] < '1' || start[1] > '9') return 0;
    }
    __u64 now = bpf_ktime_get_ns();
    bpf_map_update_elem(&asked, &one, &now, BPF_NOEXIST); /* of requests sent one after another, the first counts */
    return 0;
}

static __always_inline int receive(unsigned long fd)
{
    __u32 thread = traced_thread(), one = fd;
    if (!thread || !bpf_map_lookup_elem(&asked, &one)) return 0;
    bpf_map_update_elem(&receiving, &thread, &one, BPF_ANY);
    return 0;
}

static __always_inline int received(long count)
{
    __u32 thread = traced_thread();
    if (!thread) return 0;
    __u32 *place = bpf_map_lookup_elem(&receiving, &thread);
    if (!place) return 0;
    __u32 fd = *place;
    bpf_map_delete_elem(&receiving, &thread);
    if (count <= 0) return 0;
    __u64 *since = bpf_map_lookup_elem(&asked, &fd);
    if (!since) return 0;
    __u64 now = bpf_ktime_get_ns(), took = now - *since;
    if (bpf_map_delete_elem(&asked, &fd)) return 0; /* another thread counted it */
    struct socket_times *times = bpf_map_lookup_elem(&sockets, &fd);
    if (!times) {
        bpf_map_update_elem(&sockets, &fd, &untimed, BPF_NOEXIST);
        times = bpf_map_lookup_elem(&sockets, &fd);
        if (!times) return 0;
    }
    __sync_fetch_and_add(&times->count, 1);
    __sync_fetch_and_add(&times->sum, took);
    if (took > times->max) times->max = took;
    times->last = now;
    __u64 micros = took / 1000;
    __u32 place_of = 0;
#pragma unroll
    for (int shift = 16; shift; shift >>= 1) {
        if (micros >> shift) {
            micros >>= shift;
            place_of += shift;
        }
    }
    __sync_fetch_and_add(&times->log2[place_of & 31], 1);
    return 0;
}

SEC("tracepoint/syscalls/sys_enter_sendto")
int enter_sendto(struct trace_event_raw_sys_enter *call)
{
    return request(call->args[0], (const void *)call->args[1]);
}

SEC("tracepoint/syscalls/sys_enter_sendmsg") /* struct user_msghdr: its third field points to the first piece */
int enter_sendmsg(struct trace_event_raw_sys_enter *call)
{
    const void *pieces = 0, *first = 0;
    bpf_probe_read_user(&pieces, sizeof pieces, (const char *)call->args[1] + 16);
    bpf_probe_read_user(&first, sizeof first, pieces);
    return request(call->args[0], first);
}

SEC("tracepoint/syscalls/sys_enter_write")
int enter_write(struct trace_event_raw_sys_enter *call)
{
    return request(call->args[0], (const void *)call->args[1]);
}

SEC("tracepoint/syscalls/sys_enter_recvfrom")
int enter_recvfrom(struct trace_event_raw_sys_enter *call)
{
    return receive(call->args[0]);
}

SEC("tracepoint/syscalls/sys_enter_read")
int enter_read(struct trace_event_raw_sys_enter *call)
{
    return receive(call->args[0]);
}

SEC("tracepoint/syscalls/sys_exit_recvfrom")
int exit_recvfrom(struct trace_event_raw_sys_exit *call)
{
    return received(call->ret);
}

SEC("tracepoint/syscalls/sys_exit_read")
int exit_read(struct trace_event_raw_sys_exit *call)
{
    return received(call->ret);
}

SEC("tracepoint/syscalls/sys_enter_close") /* what waits on it waits no more, and its number will be another's */
int enter_close(struct trace_event_raw_sys_enter *call)
{
    __u32 fd = call->args[0];
    if (traced_thread()) bpf_map_delete_elem(&asked, &fd);
    return 0;
}
