# SPDX-License-Identifier: Apache-2.0
"""More real tools on the mount, each a check of its own against a plain copy
made by `export`, which needs no mount: rsync, tar, cp -a, grep, dd, less, file,
lsof, fuser; overlayfs, bind mounts, a second mount, a user namespace."""
import hashlib
import os
import random
import signal
import subprocess
import sys
import time

from ckptest import *
from mounts import *

import numpy as np
import safetensors.numpy


def sums(folder):
    return {p.relative_to(folder): sha(p.read_bytes())
            for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


def copies(point, plain, tmp):
    tool("cp", "-a", point / "run", tmp / "cp")
    equal(sums(tmp / "cp"), sums(plain), "cp -a")
    for a, b in ((point / "run/1/model/a/w.npy", tmp / "cp/1/model/a/w.npy"),):
        equal((os.stat(a).st_mtime_ns, os.stat(a).st_mode),
              (os.stat(b).st_mtime_ns, os.stat(b).st_mode), "cp -a, facts")
    tool("rsync", "-a", f"{point}/run/", tmp / "rsync")
    equal(sums(tmp / "rsync"), sums(plain), "rsync -a")
    equal(tool("rsync", "-anic", f"{point}/run/", tmp / "rsync"), b"",
          "rsync -c finds nothing to do")
    tool("sh", "-c", f"tar c -C {point} run | tar x -C {tmp}")
    equal(sums(tmp / "run"), sums(plain), "tar")
    listed = tool("sh", "-c", f"tar c -C {point} run | tar t").split(b"\n")
    check(b"run/1/model/a/w.npy" in listed, "tar t")
    equal(tool("diff", "-r", "--no-dereference", point / "run", tmp / "cp"),
          b"", "diff -r")


def facts(point, plain):
    found = {}
    for row in tool("find", point / "run", "-type", "f", "-size", "+1000c",
                    "-printf", "%P %s\\0").split(b"\0")[:-1]:
        path, size = row.rsplit(b" ", 1)
        found[os.fsdecode(path)] = int(size)
    want = {str(p): os.stat(plain / p).st_size for p in sums(plain)
            if os.stat(plain / p).st_size > 1000}
    equal(found, want, "find -size")
    for p in list(sums(plain))[:20]:
        equal(int(tool("stat", "-c", "%s", point / "run" / p)),
              (plain / p).stat().st_size, f"stat {p}")
    def tree_bytes(top):
        return int(tool("du", "-s", "--apparent-size", "-B1", top).split()[0])
    folders = [p for p in plain.rglob("*") if p.is_dir()]
    sizes = sum((plain / p).stat().st_size for p in sums(plain))
    check(tree_bytes(point / "run") >= sizes, "du --apparent-size")
    used = int(tool("df", "-B1", "--output=used", point).split()[-1])
    check(0 < used < 1 << 40 and folders, "df")
    entries = [e for e in os.scandir(point / "run/1/model")]
    equal({(e.name, e.is_dir(), e.inode() == e.stat().st_ino)
           for e in entries},
          {(e.name, e.is_dir(), True) for e in
           os.scandir(plain / "1/model")}, "os.scandir")
    text = tool("grep", "-rl", "dtype", point / "run/1")
    check(b"w.txt" in text, "grep -r")


def pieces(point, plain):
    rng = random.Random(7)
    file, copy = point / "run/1/model/big.npy", plain / "1/model/big.npy"
    data = copy.read_bytes()
    for _ in range(20):
        skip_, count = rng.randrange(len(data)), rng.randrange(1, 9999)
        got = tool("dd", f"if={file}", "iflag=skip_bytes,count_bytes",
                   f"skip={skip_}", f"count={count}", f"bs={count + 3}",
                   "status=none")
        equal(sha(got), sha(data[skip_:skip_ + count]), f"dd {skip_}+{count}")
    equal(tool("head", "-c", "1234", file), data[:1234], "head -c")
    equal(tool("tail", "-c", "777", file), data[-777:], "tail -c")
    text = plain / "1/model/a/w.txt"
    equal(tool("less", "-F", point / "run/1/model/a/w.txt",
               env=dict(os.environ, LESS="")), text.read_bytes(), "less")
    check(b"NumPy" in tool("file", file) or b"numpy" in tool("file", file),
          "file knows .npy")
    check(np.array_equal(np.load(file), np.load(copy)), "np.load")
    check(np.array_equal(np.load(file, mmap_mode="r")[5:50, 3:70],
                         np.load(copy)[5:50, 3:70]), "np.load, mapped")
    many = [subprocess.Popen(["md5sum", file], stdout=subprocess.PIPE)
            for _ in range(16)]
    equal({p.communicate()[0].split()[0] for p in many},
          {hashlib.md5(data).hexdigest().encode()}, "md5sum by 16")


def who(point):
    file = point / "run/1/model/big.npy"
    with open(file, "rb"):
        listed = tool("lsof", "-w", file, stderr=None).decode()
        check(f" {os.getpid()} " in listed, f"lsof: {listed}")
        p = subprocess.run(["fuser", file], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        check(str(os.getpid()).encode() in p.stdout, f"fuser: {p}")


def layered(store, point, plain, tmp):
    for name in ("upper", "work", "merged", "bind", "second"):
        (tmp / name).mkdir()
    tool("mount", "-t", "overlay", "overlay", "-o",
         f"lowerdir={point}/run,upperdir={tmp}/upper,workdir={tmp}/work",
         tmp / "merged")
    try:
        equal(sums(tmp / "merged"), sums(plain), "an overlay over it")
        file = tmp / "merged/1/model/a/w.npy"
        data = file.read_bytes()
        os.chmod(file, 0o644)
        with open(file, "r+b") as f:
            f.write(b"changed")
        equal(file.read_bytes(), b"changed" + data[7:], "copied up")
        (tmp / "merged/1/new").write_text("new")
        os.unlink(tmp / "merged/1/model/big.npy")
        equal((point / "run/1/model/a/w.npy").read_bytes(), data,
              "the mount is as it was")
    finally:
        tool("umount", tmp / "merged")
    tool("mount", "--bind", point / "run/1", tmp / "bind")
    try:
        equal(sums(tmp / "bind"), sums(plain / "1"), "a bind mount")
        text = run("umount", point, ok=False).stderr
        equal(text, b"", "a bind mount elsewhere does not hold it")
    finally:
        tool("umount", tmp / "bind")
    run("mount", store, point)
    tool("mount", "--bind", tmp / "work", point / "run/1/model")
    try:
        text = one_sentence(run("umount", point, ok=False), "mounted below")
        check("model (another mount)" in text, text)
    finally:
        tool("umount", point / "run/1/model")
    with mounted(store, tmp / "second"):
        tool("diff", "-r", "--no-dereference", point, tmp / "second")
        equal({p: os.lstat(point / p).st_ino for p in sums(plain / "1")
               if (point / p).exists()},
              {p: os.lstat(tmp / "second" / p).st_ino
               for p in sums(plain / "1") if (point / p).exists()},
              "inode numbers of two mounts")


def user_namespace(store, tmp):
    (tmp / "ns").mkdir()
    probe = subprocess.run(["unshare", "-Urm", "true"],
                           stderr=subprocess.PIPE)
    if probe.returncode != 0:
        skip(f"no user namespaces here: {probe.stderr.decode()}")
    script = (f"{PROGRAM} mount {store} {tmp}/ns && "
              f"cat {tmp}/ns/run/1/model/a/w.npy && umount {tmp}/ns")
    p = subprocess.run(["unshare", "-Urm", "sh", "-c", script],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(p.returncode, 0, f"in a user namespace: {p.stderr.decode()}")
    return p.stdout


def main():
    if sys.argv[1:2] == ["namespace"]:
        with folder() as tmp:
            store = new_store(tmp)
            make(tmp, store)
            run("export", f"{store}:run", tmp / "plain")
            equal(user_namespace(store, tmp),
                  (tmp / "plain/1/model/a/w.npy").read_bytes(), "its bytes")
        done()
    need_root()
    need("rsync", "tar", "less", "file", "lsof", "fuser", "dd", "md5sum")
    with folder() as tmp:
        store = new_store(tmp)
        make(tmp, store)
        plain, point = tmp / "plain", tmp / "m"
        run("export", f"{store}:run", plain)
        point.mkdir()
        run("mount", store, point)
        try:
            copies(point, plain, tmp)
            facts(point, plain)
            pieces(point, plain)
            who(point)
            layered(store, point, plain, tmp)
        finally:
            run("umount", point)
    done()


def make(tmp, store):
    rng = np.random.default_rng(5)
    safetensors.numpy.save_file(
        {"a.w": np.arange(500, dtype=np.float32),
         "a.b": np.zeros(3, np.int64), "empty": np.zeros((0, 3), np.float16),
         "big": rng.standard_normal((700, 1100)).astype(np.float32)},
        tmp / "m.safetensors")
    for i in "12":
        run("import", tmp / "m.safetensors", f"{store}:run/{i}")


need_fuse()
main()
