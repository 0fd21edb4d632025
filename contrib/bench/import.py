#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Import against cp + fsync of the same file, interleaved.

usage: import.py [--mib 4096] [--rounds 5] [--dir DIR] [--json FILE]

One bf16 tensor of random rows; every import goes into a fresh store, so all of
it is new. Memory is touched and freed before each run ("heat"), the page cache
is the same for both (the source was read just before). Prints medians, spread
and the ratio import rate / cp rate; 1.0 means as fast as cp + fsync.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write_source(path, mib):
    rows, columns = mib * 8, 65536
    header = json.dumps({"big": {
        "dtype": "BF16", "shape": [rows, columns],
        "data_offsets": [0, rows * columns * 2]}}).encode()
    header += b" " * (-len(header) % 8)
    block = os.urandom(64 << 20)
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        left, i = rows * columns * 2, 0
        while left:
            n = min(left, len(block) - 8)
            f.write(i.to_bytes(8, "little")[:n] + block[:n - 8])
            left -= n
            i += 1
        f.flush()
        os.fsync(f.fileno())


def heat(path, mib):
    data = bytearray(min(mib, 4096) << 20)
    for at in range(0, len(data), 4096):
        data[at] = 1
    with open(path, "rb") as f:
        while f.read(1 << 22):
            pass


def copy(source, work):
    target = work / "copy"
    start = time.monotonic()
    subprocess.run(["cp", source, target], check=True)
    fd = os.open(target, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    took = time.monotonic() - start
    target.unlink()
    return took


def imported(program, source, work):
    store = work / "store"
    subprocess.run([program, "init", "-q", store], check=True)
    start = time.monotonic()
    subprocess.run([program, "import", "-q", source, f"{store}:big"],
                   check=True)
    took = time.monotonic() - start
    shutil.rmtree(store)
    return took


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--mib", type=int, default=4096)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--dir", default=None)
    p.add_argument("--json", default=None)
    p.add_argument("--program", default=str(ROOT / "build/fs/cli/ckptfs"))
    a = p.parse_args()
    times = {"cp + fsync": [], "import": []}
    with tempfile.TemporaryDirectory(dir=a.dir) as tmp:
        work = pathlib.Path(tmp)
        source = work / "big.safetensors"
        write_source(source, a.mib)
        for r in range(a.rounds):
            order = list(times) if r % 2 == 0 else list(times)[::-1]
            for name in order:
                heat(source, a.mib)
                os.sync()
                times[name].append(
                    copy(source, work) if name == "cp + fsync"
                    else imported(a.program, source, work))
    print(f"{'':12} {'median s':>9} {'min':>7} {'max':>7} {'MB/s':>7}")
    for name, t in times.items():
        m = statistics.median(t)
        print(f"{name:12} {m:9.2f} {min(t):7.2f} {max(t):7.2f} "
              f"{a.mib * 1.048576 / m:7.0f}")
    ratio = (statistics.median(times["cp + fsync"]) /
             statistics.median(times["import"]))
    print(f"import / (cp + fsync): {ratio:.2f}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"mib": a.mib, "seconds": times, "ratio": ratio}, f)


main()
