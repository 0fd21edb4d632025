#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planes codec against ZipNN, on the same data, one thread each.

usage: codec_zipnn.py BENCH_CODEC [ROUNDS]

BENCH_CODEC is build/contrib/bench_codec. Needs ZipNN, which is in no
distribution: python3 -m venv z && z/bin/pip install zipnn torch

ZipNN gets each kind of data whole, 4 MiB, as it cuts it by itself; we cut it in
cells of 256 KiB and take and check checksums. The two take turns: a round of
bench_codec (which itself has several and gives their median), then one of
ZipNN. Printed are medians over rounds. Times are of the process (ZipNN) and of
the thread (ours), so a busy machine matters less.
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from zipnn import ZipNN

KINDS = {"bf16": "bfloat16", "f32": "float32", "adam_m": "float32",
         "adam_v": "float32", "f16": "float16"}


def timed(fn):
    start = time.process_time()
    out = fn()
    return out, time.process_time() - start


def zipnn(data, dtype):
    """Ratio, GB/s of encoding and of decoding: medians."""
    z = ZipNN(input_format="byte", bytearray_dtype=dtype, threads=1)
    enc, dec = [], []
    for _ in range(7):
        copy = bytearray(data)  # it turns its input where it lies
        coded, s = timed(lambda: z.compress(copy))
        enc.append(s)
        again, s = timed(lambda: z.decompress(coded))
        dec.append(s)
        assert bytes(again) == data
    gb = len(data) / 1e9
    return (len(coded) / len(data), gb / statistics.median(enc),
            gb / statistics.median(dec))


def ours(bench, kind):
    out = subprocess.run([bench, "-r", "7", kind], stdout=subprocess.PIPE,
                         check=True).stdout.decode().splitlines()[-1]
    f = out.replace("%", "").replace("x", "").split()
    return float(f[1]), float(f[4]), float(f[7])


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__.strip())
        sys.exit(2)
    bench, rounds = sys.argv[1], int((sys.argv + ["5"])[2])
    print(f"{'':12} {'ratio':>6} {'zipnn':>6} {'less':>6}  {'enc':>6} "
          f"{'zipnn':>6} {'':>6}  {'dec':>6} {'zipnn':>6}   GB/s")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([bench, "-s", folder, *KINDS], check=True)
        for kind, dtype in KINDS.items():
            data = (pathlib.Path(folder) / kind).read_bytes()
            a, b = [], []
            for _ in range(rounds):
                a.append(ours(bench, kind))
                b.append(zipnn(data, dtype))
            a, b = ([statistics.median(c) for c in zip(*x)] for x in (a, b))
            print(f"{kind:12} {a[0]:6.4f} {b[0]:6.4f} "
                  f"{100 - 100 * a[0] / b[0]:5.1f}%  {a[1]:6.2f} {b[1]:6.2f} "
                  f"{a[1] / b[1]:5.2f}x  {a[2]:6.2f} {b[2]:6.2f} "
                  f"{a[2] / b[2]:5.2f}x", flush=True)


main()
