# SPDX-License-Identifier: Apache-2.0
"""Stores made by older versions read for ever, by the C code and by the
independent reader, with the bytes that make_golden.c says."""
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


def main():
    rows = want()
    blob = pattern(len(TENSORS), 1500000)
    stores = sorted(Path for Path in
                    (ROOT / "tests/golden").glob("store-*"))
    check(len(stores) > 0, "there is a golden store")
    for golden in stores:
        with folder() as tmp:
            store = tmp / "store"
            shutil.copytree(golden, store)  # git keeps no empty folders
            for part in ("bad", "condemned", "staging", "tags", "marks",
                         "plans"):
                (store / part).mkdir(exist_ok=True)
            p = run("check", "--full", store)
            check(b"no damage" in p.stdout, f"{golden.name}: check --full")
            p = subprocess.run([sys.executable, READER, "verify", store],
                               stdout=subprocess.PIPE)
            equal(p.returncode, 0, f"{golden.name}: reader.py verify")
            for name in ("zstd/1", "again/2"):
                p = subprocess.run([sys.executable, READER, "tensors", store,
                                    name], stdout=subprocess.PIPE)
                got = {}
                for line in p.stdout.decode().split("\n"):
                    if line:
                        item, t, *facts = line.split("\t")
                        got[unescape(t)] = facts
                for t, (dtype, shape, data) in rows.items():
                    equal(got.get(t), [dtype, shape, str(len(data)),
                                       sha(data)], f"reader {name} {t!r}")
                    if "\0" not in t:
                        p = run("cat", "--tensor", t, f"{store}:{name}")
                        check(p.stdout == data, f"cat {name} {t}")
                equal(got["state/shuffle.bin"][3], sha(blob), "opaque file")
                p = run("cat", f"{store}:{name}/dataloader/state/"
                               "shuffle.bin")
                check(p.stdout == blob, f"cat {name} opaque file")
    done()


main()
