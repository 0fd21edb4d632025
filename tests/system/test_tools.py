# SPDX-License-Identifier: Apache-2.0
"""Real tools on the mount: ls, find, cp, diff, md5sum, mmap, NumPy; and every
modifying call answered with EROFS. What files must hold comes from the
imported file, through safetensors, and from NumPy."""
import errno
import hashlib
import io
import mmap
import os
import random
import shutil
import subprocess

from ckptest import *
from mounts import *

import numpy as np
import safetensors


def arrays_of(file):
    """{path below the item: bytes of the .npy} of a safetensors file."""
    of = {code: np.dtype(d).newbyteorder("<").str for d, code in DESCR.items()
          if d not in ("V2", "f1")}
    out = {}
    for name, t in safetensors.deserialize(file.read_bytes()):
        data, shape = bytes(t["data"]), tuple(t["shape"])
        if t["dtype"] == "F4":  # one byte an element, the low half first
            data = bytes(h for b in data for h in (b & 15, b >> 4))
        elif t["dtype"].startswith("F6_"):
            continue  # NumPy has nothing of 6 bits
        npy = io.BytesIO()
        # ml_dtypes' types are written as raw bytes
        np.lib.format.write_array_header_1_0(npy, {
            "descr": of.get(t["dtype"]) or (
                "<V2" if t["dtype"] == "BF16" else "<V1"),
            "fortran_order": False, "shape": shape})
        out[tree_path(name)] = npy.getvalue() + data
    # safetensors.torch.save_model names tied tensors so
    with safetensors.safe_open(file, "numpy") as f:
        for alias, name in (f.metadata() or {}).items():
            if tree_path(name) in out:
                out.setdefault(tree_path(alias), out[tree_path(name)])
    return out


def walk_tools(point, tmp):
    listing = tool("ls", "-lR", point)
    found = tool("find", point, "-print0").split(b"\0")[:-1]
    check(len(found) > 50 and len(listing) > 1000, "ls -lR and find see it")
    again = tool("find", point, "-print0").split(b"\0")[:-1]
    equal(found, again, "find twice")
    sized = tool("find", point, "-type", "f", "-printf", "%s %p\\0")
    for row in sized.split(b"\0")[:-1]:
        size, path = row.split(b" ", 1)
        equal(len(open(path, "rb").read()), int(size),
              f"exact size of {path!r}")
    inodes = [os.lstat(p).st_ino for p in found]
    equal(len(set(inodes)), len(inodes), "inode numbers are unique")
    copy = tmp / "copy"
    tool("cp", "-r", point, copy)
    tool("diff", "-r", "--no-dereference", point, copy)
    tool("tar", "cf", tmp / "t.tar", "-C", point, ".")
    check(int(tool("du", "-s", point).split()[0]) > 0, "du")
    tool("df", point)
    return copy


def eight_readers(point, want):
    script = f"cd '{point}' && find . -type f -name '*.npy' -print0 | " \
             "xargs -0 md5sum -z"
    sums = {b"./" + path: hashlib.md5(data).hexdigest().encode()
            for path, data in want.items()}
    many = [subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
            for _ in range(8)]
    for p in many:
        out, _ = p.communicate()
        got = dict(row.split(b"  ", 1)[::-1] for row in out.split(b"\0")[:-1])
        equal(set(got.items()) ^ set(sums.items()), set(),
              "md5sum by 8 readers at once")


def random_reads(point, want_of):
    rng = random.Random(20260101)
    for path in rng.sample(sorted(want_of), min(len(want_of), 60)):
        want = want_of[path]
        with open(os.fsencode(point) + b"/" + path, "rb", buffering=0) as m:
            for _ in range(20):
                off = rng.randrange(len(want) + 2)
                n = rng.choice([1, 7, 4095, 4096, 4097, 70000])
                equal(os.pread(m.fileno(), n, off), want[off:off + n],
                      f"pread {path} {off}+{n}")
            equal(os.pread(m.fileno(), 10, len(want)), b"", "read at the end")
            equal(os.pread(m.fileno(), 10, len(want) + 12345), b"",
                  "read past the end")
            for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                with mmap.mmap(m.fileno(), 0, flags=flags,
                               prot=mmap.PROT_READ) as mm:
                    equal(mm[:], want, f"mmap of {path}")


def read_only(point):
    file = next(p for p in point.rglob("*.npy"))
    there = file.parent
    calls = {
        "open for writing": lambda: os.open(file, os.O_WRONLY),
        "open read-write": lambda: os.open(file, os.O_RDWR),
        "create": lambda: os.open(there / "new", os.O_CREAT | os.O_WRONLY),
        "truncate": lambda: os.truncate(file, 0),
        "chmod": lambda: os.chmod(file, 0o600),
        "chown": lambda: os.chown(file, 0, 0),
        "utime": lambda: os.utime(file),
        "mkdir": lambda: os.mkdir(there / "new"),
        "rmdir": lambda: os.rmdir(there),
        "unlink": lambda: os.unlink(file),
        "rename": lambda: os.rename(file, there / "new"),
        "link": lambda: os.link(file, there / "new"),
        "symlink": lambda: os.symlink("x", there / "new"),
        "mknod": lambda: os.mkfifo(there / "new"),
        "mkdir at the top": lambda: os.mkdir(point / "new"),
    }
    for what, call in calls.items():
        try:
            call()
            check(False, f"{what} succeeded")
        except OSError as e:
            equal(errno.errorcode[e.errno], "EROFS", what)


def main():
    need_fuse()
    files = good_files()
    with folder() as tmp:
        store = new_store(tmp)
        want = {}
        for i, (label, file, rows) in enumerate(files):
            run("import", file, f"{store}:run/{i}")
            for path, data in arrays_of(file).items():
                want[b"run/%d/model/" % i + path] = data
        big = tmp / "big.npy"
        import safetensors.numpy
        array = np.arange(3000 * 1000, dtype=np.float32).reshape(3000, 1000)
        safetensors.numpy.save_file({"big": array}, tmp / "big.safetensors")
        run("import", tmp / "big.safetensors", f"{store}:big")
        npy = io.BytesIO()
        np.save(npy, array)
        want[b"big/model/big.npy"] = npy.getvalue()
        with mounted(store) as point:
            loaded = np.load(point / "big/model/big.npy", mmap_mode="r")
            check(np.array_equal(loaded, array), "np.load(mmap_mode='r')")
            check(np.array_equal(loaded[1234:1300, 17:900],
                                 array[1234:1300, 17:900]), "a slice of it")
            del loaded
            equal(os.readlink(point / "run/latest"),
                  str(len(files) - 1), "latest is the highest step")
            copy = walk_tools(point, tmp)
            eight_readers(point, want)
            random_reads(point, want)
            read_only(point)
            first = {p: os.lstat(p).st_ino for p in point.rglob("*")}
        with mounted(store, point := tmp / "again" if (tmp / "again").mkdir()
                     is None else None) as point2:
            second = {p: os.lstat(p).st_ino for p in point2.rglob("*")}
        equal(sorted(first.values()), sorted(second.values()),
              "inode numbers are stable across mounts")
        # without FUSE: export gives the same tree
        run("export", f"{store}:run", tmp / "exported")
        tool("diff", "-r", "--no-dereference", copy / "run",
             tmp / "exported")
        for path, data in want.items():
            if path.startswith(b"run/"):
                there = os.fsencode(tmp / "exported") + path[3:]
                equal(open(there, "rb").read(), data, f"exported {path}")
    done()


main()
