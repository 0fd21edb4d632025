# SPDX-License-Identifier: Apache-2.0
"""The mount for days, in minutes: 200 rounds of mount and unmount, a hundred
thousand tensors looked up and forgotten, thousands of checkpoints with few
descriptors, small limits, daemons killed under their readers."""
import hashlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import time

from ckptest import *
from mounts import *


def drop_caches():
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2\n")


def mounts(tmp):
    return [r for r in open("/proc/self/mounts") if str(tmp) in r]


def rounds(store, point, count):
    before = (mounts(point.parent), sorted(os.listdir(tempfile.gettempdir())))
    descriptors = len(os.listdir("/proc/self/fd"))
    seen = []
    for i in range(count):
        run("mount", store, point)
        (point / "run/1/model/layers/7/w.npy").read_bytes()
        seen.append({k: v for k, v in status(point).items()
                     if k in ("descriptors", "memory.resident_bytes")})
        pid = status(point)["pid"]
        run("umount", point)
        if i % 20 == 0:
            check(wait_for(lambda: ended(pid)), "the daemon ends")
    check(wait_for(lambda: ended(pid)), "the last daemon ends")
    equal(len(os.listdir("/proc/self/fd")), descriptors, "descriptors here")
    after = (mounts(point.parent), sorted(os.listdir(tempfile.gettempdir())))
    equal(after[0], before[0], "mounts left")
    gone = {n for n in after[1] if n.startswith("ckptfs")} - set(before[1])
    equal(gone - {n for n in gone if not mine(n)}, set(), "files in /tmp")
    equal(seen[-1]["descriptors"], seen[0]["descriptors"], "the 200th round")


def mine(name):
    """Made by a program that has ended? Others' tests may run beside."""
    return not name.startswith(("ckptfs-test-", "ckptfs-mnt-"))


def dead_and_back(store, point):
    for _ in range(20):
        run("mount", store, point)
        pid = status(point)["pid"]
        readers = [subprocess.Popen(
            ["sh", "-c", f"while cat {point}/run/1/model/layers/*/w.npy; "
             "do :; done"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL) for _ in range(3)]
        time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        for r in readers:
            r.wait(20)  # they end, and do not hang
        check(wait_for(lambda: ended(pid)), "it is dead")
        text = one_sentence(run("mount", store, point, ok=False), "a dead one")
        check("ckptfs umount" in text, text)
        text = one_sentence(run("mount", "--status", point, ok=False),
                            "status of a dead one")
        check("gone" in text, text)
        run("umount", point)
        check(not os.path.ismount(point), "one mount, not a pile")


def hundred_thousand(tmp, point):
    """Nodes are forgotten with the kernel's entries, and memory comes back."""
    count = 100000
    many_tensors(tmp / "big.safetensors", count, "w{}")
    store = new_store(tmp, "big")
    start = time.monotonic()
    run("import", "-q", tmp / "big.safetensors", f"{store}:big")
    print(f"import of {count} tensors: {time.monotonic() - start:.1f} s")
    with mounted(store, point):
        start = time.monotonic()
        names = tool("ls", point / "big/model").split()
        print(f"first ls {time.monotonic() - start:.2f} s")
        equal(len(names), 2 * count, "every name once")
        equal(len(set(names)), 2 * count, "no name twice")
        seek_and_tell(point / "big/model", set(names))
        peaks = []
        for _ in range(4):
            tool("ls", "-lR", point)
            peaks.append(status(point))
            drop_caches()
            wait_for(lambda: status(point)["nodes"] < 100)
        low = status(point)
        check(peaks[0]["nodes"] > 2 * count, f"looked up: {peaks[0]}")
        check(low["nodes"] < 100, f"forgotten: {low['nodes']}")
        memory = [p["memory.resident_bytes"] >> 20 for p in peaks]
        print("MiB at the peaks", memory, "then",
              low["memory.resident_bytes"] >> 20)
        check(max(memory) < 200, f"daemon under 200 MiB: {memory}")
        check(memory[-1] <= memory[0] + 8, f"no growth: {memory}")
        check(low["memory.resident_bytes"] >> 20 < memory[0] - 15,
              "memory comes back")
        removed_under_readers(store, point, tmp)


def removed_under_readers(store, point, tmp):
    """The large one goes while others are read and it is listed."""
    many_tensors(tmp / "few.safetensors", 50, "w{}")
    run("import", "-q", tmp / "few.safetensors", f"{store}:few")
    check(wait_for(lambda: "few" in os.listdir(point)), "another one")
    complaints = open(tmp / "complaints", "w+")  # a pipe would fill
    lister = subprocess.Popen(["ls", "-lR", point], stdout=subprocess.DEVNULL,
                              stderr=complaints)
    rm = subprocess.Popen([PROGRAM, "rm", "-q", f"{store}:big"])
    reads = 0
    while rm.poll() is None or lister.poll() is None:
        i = reads % 50
        equal((point / f"few/model/w{i}.npy").read_bytes()[-16:],
              i.to_bytes(16, "little"), f"few, tensor {i}")
        reads += 1
    equal(rm.wait(), 0, "rm")
    for line in (tmp / "complaints").read_text().split("\n"):
        check(not line or "No such file" in line or "Stale" in line,
              f"ls says {line}")
    complaints.close()
    check(reads > 50, f"reads went on: {reads}")
    check(wait_for(lambda: "big" not in os.listdir(point)), "it is gone")
    equal(len(tool("ls", point / "few/model").split()), 100, "few is whole")


def seek_and_tell(folder, names):
    """telldir and seekdir at many places of a large folder."""
    import ctypes

    class Dirent(ctypes.Structure):
        _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64),
                    ("reclen", ctypes.c_uint16), ("type", ctypes.c_uint8),
                    ("name", ctypes.c_char * 256)]
    c = ctypes.CDLL(None)
    c.opendir.restype = ctypes.c_void_p
    c.readdir.restype = ctypes.POINTER(Dirent)
    c.readdir.argtypes = c.telldir.argtypes = c.closedir.argtypes = [
        ctypes.c_void_p]
    c.telldir.restype = ctypes.c_long
    c.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    d = c.opendir(os.fsencode(folder))
    places = []
    while True:
        at = c.telldir(d)
        entry = c.readdir(d)
        if not entry:
            break
        places.append((at, entry.contents.name))
    equal({n for _, n in places} - {b".", b".."}, names, "readdir, complete")
    for at, name in places[::-3777]:
        c.seekdir(d, at)
        equal(c.readdir(d).contents.name, name, f"after seekdir {at}")
    c.closedir(d)


def thousands(tmp, point):
    """Many checkpoints, looked into and read, with 64 descriptors."""
    store = new_store(tmp, "thousands")
    many_tensors(tmp / "few.safetensors", 4, "w{}")
    run("import", "-q", tmp / "few.safetensors", f"{store}:run/0")
    source = (store / "checkpoints/run/0").read_bytes()
    for i in range(1, 2000):
        (store / f"checkpoints/run/{i}").write_bytes(source)
    was = resource.getrlimit(resource.RLIMIT_NOFILE)
    start = time.monotonic()
    p = subprocess.run(["sh", "-c", 'ulimit -n 64; exec "$0" mount "$1" "$2"',
                        PROGRAM, store, point], stderr=subprocess.PIPE)
    equal(p.returncode, 0, f"mount with 64 descriptors: {p.stderr}")
    print(f"mount of 2000 checkpoints: {time.monotonic() - start:.2f} s")
    equal(resource.getrlimit(resource.RLIMIT_NOFILE), was, "ours")
    want = bytes([3]) + bytes(15)
    for turn in range(2):
        for i in range(2000):
            data = (point / f"run/{i}/model/w3.npy").read_bytes()
            if not equal(data[-16:], want, f"checkpoint {i}, turn {turn}"):
                break
        now = status(point)
        check(now["descriptors"] < 64, f"descriptors: {now['descriptors']}")
        check(now["manifests.descriptors"] <= 16, "of manifests")
        memory = now["memory.resident_bytes"] >> 20
        check(memory < 200, f"daemon under 200 MiB: {memory}")
        equal(now["errors"], 0, "errors")
    files = [open(point / f"run/{i}/model/w{k}.npy", "rb")
             for i in range(0, 1000) for k in (0,)]
    for f in files:
        equal(f.read()[-16:], bytes(16), f.name)
        f.close()
    print(status(point))
    run("umount", point)


def small_memory(store, point, tmp):
    """A tensor far larger than what the daemon may use."""
    size = 400 << 20
    header = json.dumps({"wide0": {"dtype": "U8", "shape": [size],
                                   "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(tmp / "wide.safetensors", "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        for _ in range(size >> 20):
            f.write(os.urandom(1 << 20))
    wide = new_store(tmp, "wide")
    run("import", "-q", tmp / "wide.safetensors", f"{wide}:wide")
    limits = memory_limit(128 << 20)
    p = subprocess.run([PROGRAM, "mount", wide, point], preexec_fn=limits,
                       stderr=subprocess.PIPE)
    if not equal(p.returncode, 0, f"mount in 128 MiB: {p.stderr.decode()}"):
        return
    readers = [subprocess.Popen(["md5sum", point / "wide/model/wide0.npy"],
                                stdout=subprocess.PIPE) for _ in range(8)]
    sums = {r.communicate()[0] for r in readers}
    equal(len(sums), 1, "eight readers agree")
    with open(point / "wide/model/wide0.npy", "rb") as f:
        equal(sums, {b"%s  %s\n" % (hashlib.md5(f.read(128) + raw(
            tmp / "wide.safetensors", len(header) + 8)).hexdigest().encode(),
            os.fsencode(f.name))}, "the bytes that were imported")
    now = status(point)
    peak = peak_of(now["pid"])
    print("in 128 MiB:", peak >> 20, "MiB at the peak")
    check(peak < 128 << 20, f"within the limit: {peak}")
    equal(now["errors"], 0, "errors")
    run("umount", point)


def raw(path, off):
    with open(path, "rb") as f:
        f.seek(off)
        return f.read()


def group_path():
    """Where a cgroup of our own may be, by the kernel's two interfaces."""
    top = pathlib.Path("/sys/fs/cgroup")
    v2 = (top / "cgroup.controllers").exists()
    return (top if v2 else top / "memory") / f"ckptfs-test-{os.getpid()}"


def memory_limit(size):
    """A cgroup, where one may be made; else only the peak is looked at."""
    group = group_path()
    try:
        group.mkdir()
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (group / name).exists():
                (group / name).write_text(f"{size}\n")
                return lambda: (group / "cgroup.procs").write_text(
                    f"{os.getpid()}\n")
    except OSError:
        pass
    removed(group)
    print("no cgroup of our own here: the peak is measured, not limited")
    return None


def peak_of(pid):
    """Bytes: the most that was ever resident."""
    for text in open(f"/proc/{pid}/status"):
        if text.startswith("VmHWM:"):
            return int(text.split()[1]) << 10


def removed(group):
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def main():
    need_fuse()
    need_root()
    with folder() as tmp:
        store = new_store(tmp)
        many_tensors(tmp / "m.safetensors", 50)
        run("import", "-q", tmp / "m.safetensors", f"{store}:run/1")
        point = tmp / "m"
        point.mkdir()
        rounds(store, point, 200)
        dead_and_back(store, point)
        hundred_thousand(tmp, point)
        thousands(tmp, point)
        small_memory(store, point, tmp)
        group = group_path()
        if group.exists():
            check(wait_for(lambda: removed(group)), "the group's end")
    done()


main()
