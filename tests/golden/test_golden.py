# SPDX-License-Identifier: Apache-2.0
"""Stores made by older versions read for ever, by the C code and by the
independent reader, with the bytes that make_golden.c says; and so does what
make_golden writes now."""
import shutil
import subprocess
import sys

sys.path.insert(0, str(__import__("pathlib").Path(__file__).parents[1] /
                       "system"))
from ckptest import *

import numpy as np

TENSORS = [("scalar", "F64", "[]", 8), ("vector", "F32", "[1000]", 4000),
           ("whole", "BF16", "[400,500]", 400000),
           ("sharded", "BF16", "[600,700]", 840000),
           ("empty", "I64", "[0,3]", 0), ("f4.rows", "F4", "[4,6]", 12),
           ("f6", "F6_E2M3", "[12]", 9), ("nul\0name", "U8", "[5]", 5)]
BOXES = [(0, 101, 0, 700), (101, 600, 0, 333), (101, 600, 333, 700)]


def pattern(number, n):
    i = np.arange(n, dtype=np.uint64) // 16
    v = (i * 2654435761 + number * 97 * 16777216) & 0xFFFFFFFF
    return (v >> np.uint64(24)).astype(np.uint8).tobytes()


def want():
    rows = {}
    for number, (name, dtype, shape, n) in enumerate(TENSORS):
        data = pattern(number, n)
        if name == "sharded":  # boxes one after another, each in C order
            out = np.zeros((600, 700), dtype=np.uint16)
            flat, at = np.frombuffer(data, dtype=np.uint16), 0
            for a, b, c, d in BOXES:
                size = (b - a) * (d - c)
                out[a:b, c:d] = flat[at:at + size].reshape(b - a, d - c)
                at += size
            data = out.tobytes()
        rows[name] = (dtype, shape, data)
    rows["tied"] = rows["vector"]
    return rows


def noise(number, n, bits, exponent_bits):
    """As make_golden.c says."""
    u = np.uint64
    z = (np.arange(n, dtype=u) + u(number << 32)) * u(0x9E3779B97F4A7C15)
    z = (z ^ z >> u(30)) * u(0xBF58476D1CE4E5B9)
    z = (z ^ z >> u(27)) * u(0x94D049BB133111EB)
    m = z ^ z >> u(31)
    mantissa, middle = bits - 1 - exponent_bits, (1 << exponent_bits - 1) - 1
    ones = np.zeros(n, dtype=u)
    run = np.ones(n, dtype=bool)
    for k in range(min(middle, 64)):
        run &= m >> u(63 - k) & u(1) == 1
        ones += run
    v = ((m & u(1)) << u(bits - 1) | (u(middle) - ones) << u(mantissa) |
         m >> u(1) & u((1 << mantissa) - 1))
    return v.astype(f"<u{bits // 8}").tobytes()


def ramp(n, item, base, step):
    return (np.arange(n, dtype=np.uint64) * np.uint64(step) +
            np.uint64(base)).astype(f"<u{item}").tobytes()


def want_planes():
    rows = [("bf16", "BF16", 140001, noise(0, 140001, 16, 8)),
            ("f32", "F32", 70001, noise(1, 70001, 32, 8)),
            ("f64", "F64", 3000, noise(2, 3000, 64, 11)),
            ("f16", "F16", 3000, noise(3, 3000, 16, 5)),
            ("f8", "F8_E4M3", 3000, noise(4, 3000, 8, 4)),
            ("i64", "I64", 3000, ramp(3000, 8, 1 << 20, 3)),
            ("i32", "I32", 3000, ramp(3000, 4, 70000, 0x10000)),
            ("zeros", "F32", 262144, bytes(1 << 20)),
            ("ones", "BF16", 131073, ramp(131073, 2, 0x3F80, 0)),
            ("one", "F64", 1, ramp(1, 8, 0x3FF << 52, 0)),
            ("short", "F32", 1, ramp(1, 4, 0x3F800000, 0))]
    return {name: (dtype, f"[{n}]", data) for name, dtype, n, data in rows}


def check_tensors(store, name, rows):
    p = subprocess.run([sys.executable, READER, "tensors", store, name],
                       stdout=subprocess.PIPE)
    got = {}
    for line in p.stdout.decode().split("\n"):
        if line:
            item, t, *facts = line.split("\t")
            got[unescape(t)] = facts
    for t, (dtype, shape, data) in rows.items():
        equal(got.get(t), [dtype, shape, str(len(data)), sha(data)],
              f"reader {name} {t!r}")
        if "\0" not in t:
            p = run("cat", "--tensor", t, f"{store}:{name}")
            check(p.stdout == data, f"cat {name} {t}")
    return got


def main():
    rows = want()
    blob = pattern(len(TENSORS), 1500000)
    stores = sorted(Path for Path in
                    (ROOT / "tests/golden").glob("store-*"))
    check(len(stores) > 1, "there are golden stores")
    for golden in [*stores, None]:
        with folder() as tmp:
            store = tmp / "store"
            if golden:
                shutil.copytree(golden, store)  # git keeps no empty folders
            else:
                subprocess.run([sys.argv[1], store], check=True)
                golden = store
            for part in ("bad", "condemned", "staging", "tags", "marks",
                         "plans"):
                (store / part).mkdir(exist_ok=True)
            p = run("check", "--full", store)
            check(b"no damage" in p.stdout, f"{golden.name}: check --full")
            p = subprocess.run([sys.executable, READER, "verify", store],
                               stdout=subprocess.PIPE)
            equal(p.returncode, 0, f"{golden.name}: reader.py verify")
            for name in ("zstd/1", "again/2"):
                got = check_tensors(store, name, rows)
                equal(got["state/shuffle.bin"][3], sha(blob), "opaque file")
                p = run("cat", f"{store}:{name}/dataloader/state/"
                               "shuffle.bin")
                check(p.stdout == blob, f"cat {name} opaque file")
            if golden.name != "store-1":
                check_tensors(store, "planes/3", want_planes())
    done()


main()
