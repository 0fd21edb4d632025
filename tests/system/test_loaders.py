# SPDX-License-Identifier: Apache-2.0
"""The mount as model loaders use it: mappings of every kind of file, how much
is asked of the daemon for what is read, many threads on one descriptor, two
readers in a small cache, damage under a mapping, what changes while they look.

Requests are counted by the mount's own figures, bytes that the daemon reads by
the kernel's (/proc/PID/io)."""
import contextlib
import ctypes
import errno
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from ckptest import *
from mounts import *

import numpy as np
import safetensors.numpy

ROWS, COLUMNS = 4096, 2048
SIZE = ROWS * COLUMNS * 4  # 32 MiB
CELL = 256 << 10
HEAD = 128


def mapped(path, flags):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, flags=flags,
                                          prot=mmap.PROT_READ) as m:
        return m[:]


@contextlib.contextmanager
def locked(path):
    """A file's pages stay, though the machine is short of memory: only the
    daemon or an open could still drop them."""
    with open(path, "rb") as f:
        m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE,
                      prot=mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.c_char.from_buffer(m)
    libc = ctypes.CDLL(None, use_errno=True)
    got = libc.mlock2(ctypes.c_void_p(ctypes.addressof(base)),
                      ctypes.c_size_t(len(m)), 1)  # MLOCK_ONFAULT
    if got != 0:
        why = os.strerror(ctypes.get_errno())
        check(os.geteuid() != 0, f"mlock2: {why}")
        left_out(f"{len(m)} bytes cannot be locked ({why}): where memory is "
                 "short the kernel drops them, and the test fails")
    del base
    # on fault: a page is locked once it is touched
    for at in range(0, len(m), mmap.PAGESIZE):
        m[at]
    try:
        yield
    finally:
        m.close()


def grown(point, before):
    """What a mount's figures grew by, without this look itself."""
    after = status(point)
    own = {"requests.open": 1, "requests.release": 1, "requests.read": 2}
    return {k: after[k] - before[k] - own.get(k, 0) for k in after}


def maps(store, tmp):
    """mount-01: each kind of file, shared and private, with no options."""
    run("export", store, tmp / "plain")
    kinds = set()
    with mounted(store) as point:
        for path in sorted((tmp / "plain").rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            want = path.read_bytes()
            file = point / path.relative_to(tmp / "plain")
            for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                if want:
                    equal(sha(mapped(file, flags)), sha(want), f"map {file}")
            equal(sha(file.read_bytes()), sha(want), f"read {file}")
            kinds.add(file.name if file.parent.name in ("1", file.anchor) or
                      file.parent == point else file.suffix)
    equal(kinds, {"README.txt", "checkpoint.json", ".npy", ".txt", ".json"},
          "kinds of files")


def few_requests(store, array):
    """mount-05, mount-06, mount-07."""
    with mounted(store) as point:
        file = point / "run/1/model/big.npy"
        least = 64 << 10
        if os.geteuid() == 0:  # then read-ahead can be raised
            least = 256 << 10
            line = next(r.split() for r in open("/proc/self/mountinfo")
                        if r.split()[4] == str(point))
            ahead = f"/sys/class/bdi/{line[2]}/read_ahead_kb"
            os.stat(file)
            check(int(open(ahead).read()) >= 4096, "read-ahead")
        else:
            left_out("large read-ahead: root is needed")
        before = status(point)
        data = mapped(file, mmap.MAP_SHARED)
        n = grown(point, before)
        equal(sha(data[HEAD:]), sha(array.tobytes()), "through a mapping")
        check(0 < n["requests.read"] <= len(data) // least + 8,
              f"{n['requests.read']} reads of a mapped file of {len(data)}")
        check(SIZE <= n["cells.decoded_bytes"] <= SIZE + 2 * CELL,
              f"each cell once: {n['cells.decoded_bytes']} of {SIZE}")

        with locked(file):
            read_again(point, file, data)


def read_again(point, file, data):
    """What was read stays in the kernel, over opens."""
    before = status(point)
    equal(sha(file.read_bytes()), sha(data), "again")
    equal(sha(mapped(file, mmap.MAP_PRIVATE)), sha(data), "and mapped")
    n = grown(point, before)
    equal((n["requests.read"], n["bytes.served"]), (0, 0),
          "what was read stays in the kernel, over opens")

    before = status(point)
    with open(file, "rb", buffering=0) as f:
        for i in range(2000):
            off = i * 7919 % (SIZE // 4096) * 4096
            if os.pread(f.fileno(), 4096, off) != data[off:off + 4096]:
                check(False, f"4 KiB at {off}")
            os.fstat(f.fileno())
    n = grown(point, before)
    check(n["requests.getattr"] <= 2 and n["requests.read"] == 0,
          f"2,000 small reads and stats: {n['requests.getattr']} getattr, "
          f"{n['requests.read']} read")


def direct(store, array):
    """mount-14: O_DIRECT is served; a folder is a folder to every open."""
    with mounted(store) as point:
        file = point / "run/1/model/big.npy"
        want = file.read_bytes()
        fd = os.open(file, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, 1 << 20) as room:
            for off in (0, 4096, SIZE // 2 // 4096 * 4096,
                        len(want) // 4096 * 4096):
                got = os.preadv(fd, [room], off)
                equal(sha(room[:got]), sha(want[off:off + (1 << 20)]),
                      f"O_DIRECT at {off}")
        os.close(fd)
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            for place in (point, point / "run/1/model"):
                try:
                    fd = os.open(place, flags)
                    os.read(fd, 1)
                    check(False, f"a folder was read, flags {flags:o}")
                except OSError as e:
                    equal(errno.errorcode[e.errno], "EISDIR",
                          f"a folder, flags {flags:o}")
                    if flags == os.O_RDONLY:
                        os.close(fd)


def one_descriptor(store, array):
    """mount-15: 32 threads read parts of one open file, none its own."""
    data = bytes(HEAD) + array.tobytes()
    wrong = []

    def reader(fd, seed):
        rng = np.random.default_rng(seed)
        for off in rng.integers(HEAD, len(data), 40):
            n = int(rng.integers(1, 200000))
            if os.pread(fd, n, off) != data[off:off + n]:
                wrong.append((seed, off, n))
    with mounted(store, None, "-o", "cache=4") as point:
        fd = os.open(point / "run/1/model/big.npy", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        threads = [threading.Thread(target=reader, args=(fd, i))
                   for i in range(32)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        os.close(fd)
    equal(wrong, [], "32 threads on one descriptor")


def small_cache(store, array):
    """mount-17: two readers far apart in a cache of a quarter of the file
    decode each cell about once, though none of it stays in the kernel."""
    data = bytes(HEAD) + array.tobytes()
    with mounted(store, None, "-o", "cache=8") as point:
        before = status(point)
        fd = os.open(point / "run/1/model/big.npy", os.O_RDONLY | os.O_DIRECT)
        step, half = 64 << 10, SIZE // 2
        with mmap.mmap(-1, step) as room:
            for off in range(0, half, step):
                for at in (off, half + off):
                    os.preadv(fd, [room], at)
                    if at > 0 and room[:] != data[at:at + step]:
                        check(False, f"bytes at {at}")
        os.close(fd)
        n = grown(point, before)
        check(n["cells.decoded_bytes"] <= SIZE * 5 // 4,
              f"decoded {n['cells.decoded_bytes']} bytes of {SIZE}")


def open_costs(tmp):
    """scale-03: opening one tensor reads the same, however many there are."""
    cost = {}
    for count in (500, 5000):
        many_tensors(tmp / "many.safetensors", count, "t{}")
        store = new_store(tmp, f"many{count}")
        run("import", "-q", tmp / "many.safetensors", f"{store}:x")
        with mounted(store) as point:
            io = f"/proc/{status(point)['pid']}/io"

            def chars():
                return int(open(io).read().split()[1])
            (point / "x/model/t0.npy").read_bytes()
            start = chars()
            for i in range(1, 400):
                got = (point / f"x/model/t{i}.npy").read_bytes()[-16:]
                if got != i.to_bytes(16, "little"):
                    check(False, f"t{i} of {count}: {got}")
            cost[count] = (chars() - start) / 399
    print("bytes read by the daemon for one tensor", cost)
    check(cost[5000] < 2 * cost[500] + 4096, f"cost grows: {cost}")


TOUCH = """import mmap, sys
with open(sys.argv[1], "rb") as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
print(sum(m[:]))
"""


def damaged_under_a_map(tmp, store, array):
    """mount-02: SIGBUS for who maps, EIO for who reads, and the daemon's log
    says which tensor, which pack, where."""
    pack = max(store.glob("packs/*/*.pack"), key=lambda p: p.stat().st_size)
    where = pack.read_bytes().find(array[1500, 100:130].tobytes())
    check(where > 0, "the bytes are in the pack")
    with open(pack, "r+b") as f:
        f.seek(where)
        f.write(b"damaged")
    point = tmp / "damaged"
    point.mkdir()
    p = subprocess.Popen([PROGRAM, "mount", "-f", store, point],
                         stderr=subprocess.PIPE)
    check(wait_for(lambda: os.path.ismount(point)), "it mounts")
    file = point / "run/1/model/big.npy"
    touch = subprocess.run([sys.executable, "-c", TOUCH, file],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal((touch.returncode, touch.stdout), (-signal.SIGBUS, b"mapped\n"),
          "touching the page")
    try:
        file.read_bytes()
        check(False, "damage was served")
    except OSError as e:
        equal(e.errno, errno.EIO, "reading it")
    equal(np.load(point / "run/1/model/a/w.npy").tolist(), [0, 1, 2],
          "the rest is served")
    p.send_signal(signal.SIGTERM)
    said = p.communicate(timeout=20)[1].decode()
    for word in ("run/1", "big", str(pack.relative_to(store)), "offset"):
        check(word in said, f"the log names {word}: {said}")


def two_mounts(tmp, store):
    """mount-09, mount-10: both show what is committed, and a file's size and
    its bytes are of one save; folders that changed have another time."""
    def save(value, size):
        safetensors.numpy.save_file({"w": np.full(size, value, np.uint8)},
                                    tmp / "w.safetensors")
        run("import", "-q", "--replace", tmp / "w.safetensors",
            f"{store}:two/1")
    save(0, 1000)
    with mounted(store) as one, mounted(store) as other:
        for value in range(1, 6):
            size = 1000 + value * 5000
            times = [os.stat(p / "two").st_mtime_ns for p in (one, other)]
            save(value, size)
            for point, time_ns in zip((one, other), times):
                def now():
                    with open(point / "two/1/model/w.npy", "rb") as f:
                        got, n = f.read()[HEAD:], os.fstat(f.fileno()).st_size
                    check(len(set(got)) == 1 and len(got) == n - HEAD ==
                          1000 + got[0] * 5000,
                          f"size {n} of {len(got)} bytes of {set(got)}")
                    return got[0] == value
                check(wait_for(now), f"save {value} is seen by {point}")
                check(wait_for(lambda: os.stat(point / "two").st_mtime_ns !=
                               time_ns), "the run's time")
        tops = [os.stat(p).st_mtime_ns for p in (one, other)]
        old = os.stat(one / "two/1").st_mtime_ns
        listed = set(os.listdir(one))
        run("import", "-q", tmp / "w.safetensors", f"{store}:new/1")
        save(9, 2000)
        for point, time_ns in zip((one, other), tops):
            check(wait_for(lambda: os.stat(point).st_mtime_ns != time_ns),
                  "the top's time")
            check(wait_for(lambda: set(os.listdir(point)) == listed |
                           {"new"}), "the top's list")
            check(wait_for(lambda: os.stat(point / "two/1").st_mtime_ns !=
                           old), "a replaced checkpoint's time")


READER = """import errno, sys
print("ready", flush=True)
sys.stdin.readline()
for path in sys.argv[1:]:
    try:
        open(path, "rb").read()
        print("read")
    except OSError as e:
        print(errno.errorcode[e.errno])
"""


def another_namespace(tmp, store):
    """mount-04: who got the mount into a namespace of their own is told that
    its daemon is gone, and does not wait; the mount itself comes back."""
    point, bind = tmp / "here", tmp / "bind"
    point.mkdir()
    bind.mkdir()
    run("mount", store, point)
    p = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && '
         'exec "$2" -c "$3" "$1/README.txt" "$0/README.txt"', point, bind,
         sys.executable, READER], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE)
    equal(p.stdout.readline(), b"ready\n", "the other namespace has it")
    pid = status(point)["pid"]
    os.kill(pid, signal.SIGKILL)
    check(wait_for(lambda: ended(pid)), "the daemon is dead")
    run("umount", point)
    run("mount", store, point)
    equal(p.communicate(b"\n", timeout=30)[0], b"ENOTCONN\n" * 2,
          "what its readers are told")
    check("README.txt" in os.listdir(point), "the new mount answers")
    run("umount", point)
    page = (ROOT / "contrib/man/ckptfs-mount.1").read_text()
    check("ENOTCONN" in page and "rslave" in page, "the page says so")


def main():
    need_fuse()
    with folder() as tmp:
        array = np.arange(ROWS * COLUMNS, dtype=np.uint32).reshape(
            ROWS, COLUMNS)
        hf = tmp / "hf"
        hf.mkdir()
        safetensors.numpy.save_file(
            {"big": array, "a.w": np.arange(3, dtype=np.int32),
             "none": np.zeros((0, 2), np.float16)}, hf / "m.safetensors")
        (hf / "config.json").write_text('{"x": 1}')
        store = new_store(tmp)
        # as they are in packs, however busy the disk is
        run("import", "--codec", "raw", hf, f"{store}:run/1")
        maps(store, tmp)
        few_requests(store, array)
        direct(store, array)
        one_descriptor(store, array)
        small_cache(store, array)
        open_costs(tmp)
        two_mounts(tmp, new_store(tmp, "two"))
        if os.geteuid() == 0:
            another_namespace(tmp, store)
        else:
            left_out("another namespace: root is needed")
        damaged_under_a_map(tmp, store, array)
    done()


main()
