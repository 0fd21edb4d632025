# SPDX-License-Identifier: Apache-2.0
"""Every tensor of every good fixture that import takes, read three ways.

(b) `ckptfs cat --tensor`, (c) the mount, (d) the independent reader; (a), the
API, is tests/contract/test_import.c, test_import_folder.c and
test_import_array.c.
"""
import os
import subprocess
import sys

from ckptest import *

PACK = {"F4": lambda b: bytes(b[i] & 15 | (b[i + 1] & 15) << 4
                              for i in range(0, len(b), 2))}


def by_cat(store, name, rows):
    for tensor, dtype, shape, nbytes, want in rows:
        if "\0" in tensor or len(tensor.encode()) > 100000:
            continue  # no argument can carry it
        p = run("cat", f"--tensor={tensor}", f"{store}:{name}")
        equal(sha(p.stdout), want, f"cat {name} {tensor!r:.60}")


def by_reader(store, name, rows):
    p = subprocess.run([sys.executable, READER, "tensors", store, name],
                       stdout=subprocess.PIPE)
    got = {}
    for line in p.stdout.decode().split("\n"):
        if line:
            item, tensor, dtype, shape, nbytes, digest = line.split("\t")
            if item == "model":
                got[unescape(tensor)] = (dtype, shape, int(nbytes), digest)
    equal(p.returncode, 0, f"reader.py tensors {name}")
    for tensor, *facts in rows:
        equal(got.get(tensor), tuple(facts), f"reader.py {name} "
                                             f"{tensor!r:.60}")


def by_mount(point, name, rows, separator):
    base = os.fsencode(point) + b"/" + name.encode() + b"/model/"
    for tensor, dtype, shape, nbytes, want in rows:
        path = base + tree_path(tensor, separator=separator)
        if dtype.startswith("F6_"):
            check(not os.path.exists(path), f"{tensor}: F6 has no .npy")
            continue
        try:
            body = npy_body(open(path, "rb").read())
        except OSError as e:
            check(False, f"mount {name} {tensor!r:.60}: {e}")
            continue
        if dtype in PACK:
            body = PACK[dtype](body)
        equal(sha(body), want, f"mount {name} {tensor!r:.60}")


def main():
    files = [(*f, ".") for f in good_files() + hf_folders()]
    files += [(*f, "/") for f in array_files()]
    with folder() as tmp:
        store = new_store(tmp)
        for i, (label, file, rows, separator) in enumerate(files):
            run("import", file, f"{store}:fixtures/{i}")
            by_cat(store, f"fixtures/{i}", rows)
            by_reader(store, f"fixtures/{i}", rows)
        if "--no-mount" not in sys.argv:
            need_fuse()
            with mounted(store) as point:
                for i, (label, file, rows, separator) in enumerate(files):
                    by_mount(point, f"fixtures/{i}", rows, separator)
        p = run("check", "--full", store)
        check(b"no damage" in p.stdout, "check --full is clean")
        p = subprocess.run([sys.executable, READER, "verify", store],
                           stdout=subprocess.PIPE)
        equal(p.returncode, 0, "reader.py verify")
    print(sum(len(f[2]) for f in files), "tensors of", len(files), "files")
    done()


main()
