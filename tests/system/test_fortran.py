# SPDX-License-Identifier: Apache-2.0
"""Fortran-order arrays of 1 GiB: right, and in memory that does not grow with
them: 64 MiB beyond the writer's 128 MiB of staging and the program itself."""
import hashlib
import os
import shutil
import subprocess
import time

from ckptest import *

import numpy as np

LIMIT = (128 + 64 + 16) << 20
# a matrix; many small leading dimensions; one row that no slab holds; pairs
SHAPES = [((16384, 16384), "<f4"), ((64, 4096, 1024), ">f4"),
          ((2, 1 << 26), "<i8"), ((1 << 26, 2), "<u8")]


def write(path, shape, descr):
    """Every element its own place in C order, so that none can be swapped;
    written in the file's order, a band at a time. Returns the sha256 of the
    little-endian bytes in C order."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=descr,
                                    shape=shape, fortran_order=True)
    flat = np.dtype(descr).newbyteorder("<")
    row = int(np.prod(shape[1:]))
    digest = hashlib.sha256()
    step = max(1, (64 << 20) // (row * flat.itemsize))
    for i in range(0, shape[0], step):
        n = min(step, shape[0] - i)
        band = np.arange(i * row, (i + n) * row, dtype=np.uint64)
        band = (band * np.uint64(2654435761)).astype(
            f"<u{flat.itemsize}").view(flat)
        digest.update(band.tobytes())
        out[i:i + n] = band.reshape((n, *shape[1:]))
    out.flush()
    return digest.hexdigest()


def peak_of(*argv):
    p = subprocess.run(["/usr/bin/time", "-f", "%M", *map(str, argv)],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    err = p.stderr.decode().split()
    equal(p.returncode, 0, f"{argv[1]}: {err}")
    return int(err[-1]) << 10


def main():
    if not os.path.exists("/usr/bin/time"):
        skip("no /usr/bin/time here")
    with folder() as tmp:
        if shutil.disk_usage(tmp).free < 8 << 30:
            skip("less than 8 GiB of disk are free")
        for i, (shape, descr) in enumerate(SHAPES):
            store = new_store(tmp, f"store{i}")
            want = write(tmp / "a.npy", shape, descr)
            start = time.monotonic()
            peak = peak_of(PROGRAM, "import", "-q", tmp / "a.npy",
                           f"{store}:a")
            print(f"{shape} {descr}: {time.monotonic() - start:.1f} s, "
                  f"{peak >> 20} MiB", flush=True)
            check(peak < LIMIT, f"{shape} took {peak >> 20} MiB")
            p = subprocess.Popen([PROGRAM, "cat", "--tensor", "a",
                                  f"{store}:a"], stdout=subprocess.PIPE)
            digest = hashlib.sha256()
            while data := p.stdout.read(1 << 20):
                digest.update(data)
            equal(p.wait(), 0, f"cat {shape}")
            equal(digest.hexdigest(), want, f"{shape} {descr}")
            shutil.rmtree(store)
    done()


main()
