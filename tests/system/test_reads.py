# SPDX-License-Identifier: Apache-2.0
"""Random reads of every kind against a plain exported copy, as fsx does.

usage: test_reads.py [COUNT]     100,000 for all, fewer in quick time

pread, readv, mmap (private, shared), sendfile, splice by copy_file_range,
O_DIRECT if the file opens so, lseek and read, several descriptors of a file;
page caches are dropped now and then. The seed is printed."""
import mmap
import os
import random
import sys

from ckptest import *
from mounts import *

import numpy as np
import safetensors.numpy

SEED = int(os.environ.get("CKPT_SEED", "20260301"))


class Pair:
    def __init__(self, path, copy):
        self.data = copy.read_bytes()
        self.path = path
        self.fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
        try:
            self.direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:
            self.direct = None
        self.maps = [mmap.mmap(self.fds[0], 0, flags=f, prot=mmap.PROT_READ)
                     for f in (mmap.MAP_SHARED, mmap.MAP_PRIVATE)
                     if self.data]

    def close(self):
        for m in self.maps:
            m.close()
        for fd in self.fds + [self.direct] * (self.direct is not None):
            os.close(fd)


def place(rng, size):
    """Offsets at and around borders as well as anywhere."""
    edge = rng.choice([0, size, 4096, 128, 128 + (256 << 10), 1 << 20,
                       rng.randrange(size + 1)])
    return max(0, min(size + 5000, edge + rng.randrange(-70, 70)))


def length(rng):
    return rng.choice([0, 1, 2, 7, 100, 4095, 4096, 4097,
                       rng.randrange(70000), rng.randrange(1 << 19)])


def by_pread(rng, p, off, n):
    return os.pread(rng.choice(p.fds), n, off)


def by_readv(rng, p, off, n):
    parts, left = [], n
    while left > 0:
        k = min(left, rng.randrange(1, n + 1))
        parts.append(bytearray(k))
        left -= k
    if not parts:
        return b""
    got = os.preadv(rng.choice(p.fds), parts, off)
    return b"".join(parts)[:got]


def by_map(rng, p, off, n):
    return rng.choice(p.maps)[off:off + n] if p.maps else b""


def by_seek(rng, p, off, n):
    fd = rng.choice(p.fds)
    os.lseek(fd, off, os.SEEK_SET)
    first = os.read(fd, n // 2)
    return first + (os.read(fd, n - n // 2) if len(first) == n // 2 else b"")


def by_sendfile(rng, p, off, n):
    fd = os.memfd_create("out")
    try:
        done_ = 0
        while done_ < n:
            k = os.sendfile(fd, rng.choice(p.fds), off + done_, n - done_)
            if k == 0:
                break
            done_ += k
        return os.pread(fd, n + 1, 0)
    finally:
        os.close(fd)


def by_direct(rng, p, off, n):
    if p.direct is None:
        return by_pread(rng, p, off, n)
    start = off // 4096 * 4096
    room = mmap.mmap(-1, max(4096, -(-(off + n - start) // 4096) * 4096))
    try:
        got = os.preadv(p.direct, [room], start)
        return room[:got][off - start:off - start + n]
    finally:
        room.close()


def main():
    need_fuse()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    rng = random.Random(SEED)
    ways = [by_pread, by_readv, by_map, by_seek, by_sendfile, by_direct]
    print("seed", SEED)
    if os.geteuid() != 0:
        left_out("reads of what the kernel let go of: root is needed")
    with folder() as tmp:
        gen = np.random.default_rng(SEED)
        safetensors.numpy.save_file({
            "noise": gen.standard_normal((900, 1700)).astype(np.float32),
            "smooth": np.linspace(0, 1, 600000).astype(np.float16),
            "small": np.arange(77, dtype=np.int8),
            "tiles": gen.integers(0, 9, (64, 65537)).astype(np.uint8),
            "scalar": np.array(3.5), "empty": np.zeros((0, 4)),
        }, tmp / "m.safetensors")
        store = new_store(tmp)
        run("import", "-q", tmp / "m.safetensors", f"{store}:x")
        run("export", f"{store}:x", tmp / "plain")
        with mounted(store, None, "-o", "cache=4") as point:
            paths = [p.relative_to(tmp / "plain")
                     for p in (tmp / "plain").rglob("*") if p.is_file()]
            pairs = [Pair(point / "x" / p, tmp / "plain" / p)
                     for p in paths if p.suffix in (".npy", ".txt")]
            check(len(pairs) == 12, f"files: {len(pairs)}")
            print("O_DIRECT", pairs[0].direct is not None)
            for i in range(count):
                p = rng.choice(pairs)
                off, n = place(rng, len(p.data)), length(rng)
                way = rng.choice(ways)
                got = way(rng, p, off, n)
                if got != p.data[off:off + n]:
                    check(False, f"{way.__name__} {p.path.name} {off}+{n}, "
                                 f"read {i}: {len(got)} bytes differ")
                    break
                if i % 5000 == 999 and os.geteuid() == 0:
                    with open("/proc/sys/vm/drop_caches", "w") as f:
                        f.write("1\n")
            for p in pairs:
                p.close()
    done()


main()
