# SPDX-License-Identifier: Apache-2.0
"""A safetensors file of over 8 GiB, nearly all of it holes: what lies around
2^31, around 2^32 and at the very end is imported and served as it is there, in
little memory. The source is read beside it, and is the oracle."""
import json
import os
import resource

from ckptest import *

import numpy as np
import safetensors

SIZES = {"below": 2**31 - 1, "at": 2**31, "past": 2**32 + 1}
EDGES = (0, 2**31, 2**32)
WINDOW = 64 << 10
LIMIT = 300 << 20


def write_file(path):
    """Holes, with random bytes around edges; a small tensor comes last."""
    rng = np.random.default_rng(31)
    header, at = {}, 0
    for name, size in {**SIZES, "tail": 4000}.items():
        header[name] = {"dtype": "U8", "shape": [size],
                        "data_offsets": [at, at + size]}
        at += size
    header["tail"].update(dtype="F32", shape=[10, 100])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    tail = rng.standard_normal((10, 100)).astype(np.float32)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        start = f.tell()
        for name, size in SIZES.items():
            for edge in (*EDGES, size):
                low = max(0, edge - 2 * WINDOW)
                high = min(size, edge + 2 * WINDOW)
                f.seek(start + header[name]["data_offsets"][0] + low)
                f.write(rng.bytes(max(0, high - low)))
        f.seek(start + header["tail"]["data_offsets"][0])
        f.write(tail.tobytes())
    return {n: start + h["data_offsets"][0] for n, h in header.items()}, tail


def imported(file, store):
    """In one process of its own; the most memory that any so far took."""
    run("import", "-q", file, f"{store}:wide")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    check(peak < LIMIT, f"import took {peak >> 20} MiB")
    print(f"import {peak >> 20} MiB")


def windows(file, starts, point):
    """Through the mount: at, below and above each edge."""
    source = os.open(file, os.O_RDONLY)
    count = 0
    for name, size in SIZES.items():
        path = point / f"wide/model/{name}.npy"
        array = np.load(path, mmap_mode="r")
        equal((array.dtype, array.shape), (np.dtype("u1"), (size,)), name)
        served = os.open(path, os.O_RDONLY)
        header = os.fstat(served).st_size - size
        for edge in (*EDGES, size):
            for off in (edge - WINDOW - 1, edge - WINDOW, edge - WINDOW + 1,
                        edge - 1, edge, edge + 1):
                length = min(WINDOW, size - off)
                if off < 0 or length <= 0:
                    continue
                want = os.pread(source, length, starts[name] + off)
                got = os.pread(served, length, header + off)
                check(len(want) == length and any(want),
                      f"{name}: the source has bytes at {off}")
                check(got == want, f"{name}: read at {off}")
                check(array[off:off + length].tobytes() == want,
                      f"{name}: mapped at {off}")
                count += 1
        equal(os.pread(served, WINDOW, header + size), b"",
              f"{name}: nothing is past its end")
        os.close(served)
    os.close(source)
    print(count, "windows")


def main():
    need_fuse()
    with folder() as tmp:
        file = tmp / "wide.safetensors"
        starts, tail = write_file(file)
        with safetensors.safe_open(file, "np") as f:
            check(np.array_equal(f.get_tensor("tail"), tail),
                  "safetensors reads the file")
        store = new_store(tmp)
        imported(file, store)
        equal(run("cat", "--tensor", "tail", f"{store}:wide").stdout,
              tail.tobytes(), "the last tensor")
        with mounted(store) as point:
            windows(file, starts, point)
            check(np.array_equal(np.load(point / "wide/model/tail.npy"),
                                 tail), "the last tensor in the mount")
        used = sum(p.stat().st_blocks * 512 for p in store.glob("packs/*/*"))
        check(used < 256 << 20, f"holes are stored once: {used >> 20} MiB")
    done()


main()
