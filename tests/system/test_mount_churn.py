# SPDX-License-Identifier: Apache-2.0
"""The mount while the store changes: writers, `mv` and `rm` of manifests, many
readers, for some time. Readers see each checkpoint whole, or are told that it
is gone (ENOENT, ESTALE); the daemon does not grow.

usage: test_mount_churn.py [SECONDS]"""
import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time

from ckptest import *
from mounts import *

import numpy as np
import safetensors.numpy

GONE = {errno.ENOENT, errno.ESTALE, errno.ENOTDIR}
KINDS = 4
SIZE = 300000
stop = threading.Event()
counts = {"reads": 0, "gone": 0, "lists": 0, "changes": 0}


def prepare(tmp):
    """Files whose every byte tells which save it is of."""
    files = []
    for k in range(KINDS):
        path = tmp / f"{k}.safetensors"
        safetensors.numpy.save_file(
            {"a.w": np.full(SIZE, k, np.uint8),
             "b.w": np.full(SIZE, k, np.uint8)}, path)
        files.append(path)
    return files


def one_read(rng, point):
    run_ = point / "run"
    name = rng.choice(os.listdir(run_) or ["x"])
    if name in ("latest", "newest"):
        os.readlink(run_ / name)
    there = run_ / name / "model"
    fd = os.open(there / "a/w.npy", os.O_RDONLY)
    try:
        first = os.pread(fd, 1000, 500)
        if rng.random() < 0.2:
            time.sleep(rng.random() * 0.3)
        rest = os.pread(fd, SIZE, 0)[128:] + os.pread(fd, SIZE, SIZE)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    equal(size, SIZE + 128, "size of an open file")
    if len(set(first + rest)) != 1 or len(rest) != SIZE:
        check(False, f"{name}: half and half: {set(first + rest)}, "
                     f"{len(rest)} bytes")


def reader(seed, point):
    rng = random.Random(seed)
    while not stop.is_set():
        try:
            one_read(rng, point)
            counts["reads"] += 1
        except OSError as e:
            counts["gone"] += 1
            if e.errno not in GONE:
                check(False, f"a reader got {e}")


def lister(point):
    while not stop.is_set():
        p = subprocess.run(["ls", "-lR", point], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE)
        counts["lists"] += 1
        for line in p.stderr.decode().split("\n"):
            check(not line or "No such file" in line or "Stale" in line,
                  f"ls says {line}")


def writer(seed, store, files):
    rng = random.Random(seed)
    run_ = store / "checkpoints/run"
    while not stop.is_set():
        name, other = rng.sample(range(12), 2)
        what = rng.randrange(4)
        counts["changes"] += 1
        try:
            if what == 0:
                os.unlink(run_ / str(name))
            elif what == 1:
                os.rename(run_ / str(name), run_ / str(other))
            else:
                run("import", "-q", "--replace", rng.choice(files),
                    f"{store}:run/{name}", ok=False)
        except FileNotFoundError:
            pass
        time.sleep(0.01)


def appears(store, point, files):
    """Each kind of change is seen."""
    def soon(what, says):
        check(wait_for(what), f"not seen: {says}")

    def first(name):
        try:
            return (point / f"slow/{name}/model/a/w.npy").read_bytes()[-1]
        except OSError as e:
            check(e.errno in GONE, f"reading {name}: {e}")
            return None
    run("import", "-q", files[1], f"{store}:slow/1")
    soon(lambda: first("1") == 1, "new")
    before = os.stat(point / "slow").st_mtime_ns
    run("import", "-q", "--replace", files[2], f"{store}:slow/1")
    soon(lambda: first("1") == 2, "replaced")
    soon(lambda: os.stat(point / "slow").st_mtime_ns != before,
         "a run's time changes")
    os.rename(store / "checkpoints/slow/1", store / "checkpoints/slow/7")
    soon(lambda: first("7") == 2 and first("1") is None, "renamed")
    equal(os.readlink(point / "slow/newest"), "7", "newest follows")
    with open(point / "slow/7/model/b/w.npy", "rb") as held:
        os.unlink(store / "checkpoints/slow/7")
        soon(lambda: first("7") is None, "removed")
        equal(set(held.read()[128:]), {2}, "what is open reads on")
    soon(lambda: "7" not in os.listdir(point / "slow"), "not listed")


# asks for what is not there, from within a folder, until the mount ends
ASKER = """import errno, os, sys
os.chdir(sys.argv[1])
i = 0
while True:
    try:
        i += 1
        os.stat(f"{os.getpid()}-{i}")
    except OSError as e:
        if e.errno == errno.ENOTCONN:
            break
"""


def waits_for_a_folder(pid):
    """Does a thread of the daemon tell the kernel to drop an entry?"""
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), \
                open(f"/proc/{pid}/task/{task}/stack") as f:
            if "fuse_reverse_inval_entry" in f.read():
                return True
    return False


def ends_while_dropping(store, point, files):
    """SIGTERM while a folder's entries are dropped that others look into: the
    daemon waits for the folder's lock, they for its answer. The lock may be
    had at once: so several tries."""
    for name in "wxyz":
        run("import", "-q", files[0], f"{store}:held/{name}")
    run("mount", store, point)
    pid = status(point)["pid"]
    askers = [subprocess.Popen([sys.executable, "-c", ASKER,
                                point / "held/x"]) for _ in range(20)]
    try:
        check(wait_for(lambda: status(point)["requests.lookup"] > 1000),
              "they ask")
        for name in "wyz":
            os.rename(store / f"checkpoints/held/{name}",
                      store / "checkpoints/held/x")
            waits = wait_for(lambda: waits_for_a_folder(pid), 10)
            if waits:
                break
        print("SIGTERM while entries are dropped:", waits)
        os.kill(pid, signal.SIGTERM)
        check(wait_for(lambda: ended(pid)), "the daemon ends")
    finally:
        for p in askers:
            p.kill()
            p.wait()
    check(not os.path.ismount(point), "and unmounts")


def sweeps_its_own(store, point, files):
    """A detached mount lets go of a replaced checkpoint, and looks up nothing
    in the mount that is in its place."""
    for name in "xy":
        run("import", "-q", "--replace", files[0], f"{store}:held/{name}")
    run("mount", store, point)
    root = os.open(point, os.O_RDONLY)
    held = os.open(point / "held/x", os.O_RDONLY)

    def nodes():
        fd = os.open(".ckptfs", os.O_RDONLY, dir_fd=root)
        with open(fd) as f:
            return dict(r.split() for r in f)["nodes"]
    (point / "held/x/model/a/w.npy").read_bytes()
    run("umount", "-l", point)
    with mounted(store, point):
        status(point)
        before, looked = nodes(), status(point)["requests.lookup"]
        os.rename(store / "checkpoints/held/y", store / "checkpoints/held/x")
        check(wait_for(lambda: int(nodes()) < int(before), 20),
              "the detached one lets go")
        equal(status(point)["requests.lookup"], looked,
              "look-ups in the one in its place")
    os.close(held)
    os.close(root)


def main():
    need_fuse()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    with folder() as tmp:
        store = new_store(tmp)
        files = prepare(tmp)
        for i in range(12):
            run("import", "-q", files[i % KINDS], f"{store}:run/{i}")
        (tmp / "m").mkdir()
        if os.path.exists("/proc/self/stack") and os.geteuid() == 0:
            ends_while_dropping(store, tmp / "m", files)
        else:
            left_out("SIGTERM while dropping: stacks may not be read")
        sweeps_its_own(store, tmp / "m", files)
        with mounted(store) as point:
            appears(store, point, files)
            threads = [threading.Thread(target=reader, args=(i, point))
                       for i in range(8)]
            threads += [threading.Thread(target=writer,
                                         args=(99 + i, store, files))
                        for i in range(2)]
            threads += [threading.Thread(target=lister, args=(point,))]
            for t in threads:
                t.start()
            time.sleep(seconds / 3)
            early, before = status(point), dict(counts)
            time.sleep(seconds * 2 / 3)
            stop.set()
            for t in threads:
                t.join(60)
                check(not t.is_alive(), "a thread hangs")
            late = status(point)
        # what is open swings with what is read just then; a leak would show
        # in each of a thousand changes
        limits = {"descriptors": 48, "threads": 6, "checkpoints.open": 60,
                  "memory.resident_bytes": 24 << 20}
        if {"ASAN_OPTIONS", "TSAN_OPTIONS"} & set(os.environ):
            print("a sanitizer keeps freed memory: it is not measured")
            del limits["memory.resident_bytes"]
        for name, limit in limits.items():
            grown = late[name] - early[name]
            check(grown <= limit, f"{name} grew by {grown}")
        print(counts, {k: late[k] for k in ("descriptors", "nodes",
              "checkpoints.open", "memory.resident_bytes", "errors")})
        for name in ("reads", "lists", "changes"):
            check(counts[name] > before[name] > 0,
                  f"{name} went on: {before}, {counts}")
    done()


main()
