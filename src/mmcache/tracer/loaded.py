"""`Loaded`: the kernel side, loaded: its programs attached, its maps read."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Sequence

import numpy as np

from mmcache.model.errors import TracerError
from mmcache.tracer.layout import READ_KEY, SOCKET_TIMES, TOTALS
from mmcache.tracer.libbpf import OnMark, UprobeOptions, check, check_pointer, library

_AT_ONCE = 4096


class Loaded:
    """One object file in the kernel. What is attached goes when this is closed, or when the process ends."""

    def __init__(self, program: bytes, config: bytes, names: Sequence[str], *, most_keys: int | None = None) -> None:
        """Loads the programs of these names. Raises `TracerError`: no privilege, no BTF, refused by the kernel."""
        self._library = library()
        self._program = program  # libbpf keeps pointing into it
        self._links: list[int] = []
        self._rings: list[tuple[int, object]] = []
        opened = self._library.bpf_object__open_mem(program, len(program), None)
        self._object: int | None = check_pointer(opened, "the tracer's program cannot be read")
        try:
            self._prepare(config, names, most_keys)
            check(self._library.bpf_object__load(self._object), "the kernel refuses the tracer's program")
        except BaseException:
            self.close()
            raise

    def _prepare(self, config: bytes, names: Sequence[str], most_keys: int | None) -> None:
        program = None
        while program := self._library.bpf_object__next_program(self._object, program):
            name = self._library.bpf_program__name(program).decode()
            check(self._library.bpf_program__set_autoload(program, name in names), name)
        settings = self._find_map(".rodata.config")
        check(self._library.bpf_map__set_initial_value(settings, config, len(config)), "the tracer's settings")
        for name, value in (("keys", READ_KEY), ("sockets", SOCKET_TIMES), ("totals", TOTALS)):
            if self._library.bpf_map__value_size(self._find_map(name)) != value.itemsize:
                raise TracerError(f"the tracer's object file is another version's ({name}); reinstall mmcache")
        if most_keys is not None:
            check(self._library.bpf_map__set_max_entries(self._find_map("keys"), most_keys), "room for keys")

    def _find_map(self, name: str) -> int:
        found = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        return check_pointer(found, f"the tracer's map {name}")

    def _find_program(self, name: str) -> int:
        found = self._library.bpf_object__find_program_by_name(self._object, name.encode())
        return check_pointer(found, f"the tracer's program {name}")

    def attach(self, name: str) -> None:
        """To the tracepoint that the program itself names."""
        ctypes.set_errno(0)
        link = self._library.bpf_program__attach(self._find_program(name))
        self._links.append(check_pointer(link, f"the kernel refuses to watch {name}"))

    def attach_probe(self, name: str, pid: int, path: str, offset: int, semaphore: int) -> None:
        """To the instruction at `offset` of the file at `path`, as process `pid` runs it. semaphore: offset of the
        16 bits that the kernel raises meanwhile."""
        options = UprobeOptions(ctypes.sizeof(UprobeOptions), semaphore, 0, False, None)
        ctypes.set_errno(0)
        link = self._library.bpf_program__attach_uprobe_opts(
            self._find_program(name), pid, path.encode(), offset, ctypes.byref(options)
        )
        if not link and ctypes.get_errno() == errno.ESRCH:
            raise TracerError(f"there is no process {pid} any more")
        self._links.append(check_pointer(link, f"the kernel refuses a probe in process {pid}"))

    def ring(self, name: str, hear: Callable[[bytes], None]) -> Callable[[int], int]:
        """`poll(milliseconds)` → how many messages `hear` got; -EINTR when a signal came. What `hear` raises is the
        poll's to raise, after it."""
        failed: list[BaseException] = []

        def heard(_: object, place: int, count: int) -> int:
            try:
                hear(ctypes.string_at(place, count))
            except BaseException as error:  # noqa: BLE001 - it cannot pass through C
                failed.append(error)
            return 0

        callback = OnMark(heard)
        fd = self._library.bpf_map__fd(self._find_map(name))
        ring = check_pointer(self._library.ring_buffer__new(fd, callback, None, None), "the ring of marks")
        self._rings.append((ring, callback))

        def poll(milliseconds: int) -> int:
            count: int = (  # what is there, or what comes: a poll that may not wait could overlook what just came
                self._library.ring_buffer__poll(ring, milliseconds)
                if milliseconds
                else self._library.ring_buffer__consume(ring)
            )
            if failed:
                raise failed.pop()
            if count < 0 and -count != errno.EINTR:
                check(count, "the ring of marks")
            return max(0, count)

        return poll

    def read(self, name: str, value: np.dtype, key_bytes: int = 4) -> tuple[np.ndarray, np.ndarray]:
        """All of a hash map: keys [n, key_bytes] uint8, values [n]. While it changes, some may be missed or twice."""
        fd = self._library.bpf_map__fd(self._find_map(name))
        place = ctypes.create_string_buffer(8)
        all_keys, all_values, start = [], [], None
        while True:
            keys = np.empty((_AT_ONCE, key_bytes), np.uint8)
            values = np.empty(_AT_ONCE, value)
            count = ctypes.c_uint32(_AT_ONCE)
            result = self._library.bpf_map_lookup_batch(
                fd, start, place, keys.ctypes.data, values.ctypes.data, ctypes.byref(count), None
            )
            if result < 0 and -result != errno.ENOENT:
                check(result, f"the tracer's map {name}")
            all_keys.append(keys[: count.value])
            all_values.append(values[: count.value])
            if result < 0:
                return np.concatenate(all_keys), np.concatenate(all_values)
            start = place

    def read_one(self, name: str, value: np.dtype) -> np.void:
        """The only element of an array."""
        out, zero = np.zeros(1, value), ctypes.c_uint32(0)
        fd = self._library.bpf_map__fd(self._find_map(name))
        check(self._library.bpf_map_lookup_elem(fd, ctypes.byref(zero), out.ctypes.data), f"the tracer's map {name}")
        one: np.void = out[0]
        return one

    def list(self, name: str, wanted: set[int]) -> None:
        """Make these 32-bit numbers the keys of a hash map."""
        fd = self._library.bpf_map__fd(self._find_map(name))
        held = {int.from_bytes(key.tobytes(), "little") for key in self.read(name, np.dtype("u4"))[0]}
        for number in held - wanted:
            self._library.bpf_map_delete_elem(fd, ctypes.byref(ctypes.c_uint32(number)))
        for number in wanted - held:
            one = ctypes.c_uint32(number)
            self._library.bpf_map_update_elem(fd, ctypes.byref(one), ctypes.byref(ctypes.c_uint32(1)), 0)

    def close(self) -> None:
        """Take all probes away. Idempotent."""
        while self._links:
            self._library.bpf_link__destroy(self._links.pop())
        while self._rings:
            self._library.ring_buffer__free(self._rings.pop()[0])
        if self._object is not None:
            self._library.bpf_object__close(self._object)
            self._object = None
