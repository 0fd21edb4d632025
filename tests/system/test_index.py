# SPDX-License-Identifier: Apache-2.0
"""The index is a cache: deleted, damaged, foreign or old, nothing is lost;
with it, and after reindex, equal bytes are stored once."""
import json
import os
import shutil

from ckptest import *

import numpy as np
import safetensors.numpy


def packs(store):
    return sorted(p.name for p in store.glob("packs/*/*.pack"))


def drop_index(store):
    for end in ("", "-wal", "-shm"):
        (store / f"index.db{end}").unlink(missing_ok=True)


def imported(file, place):
    return json.loads(run("import", "--json", file, place).stdout)


def all_reads(store, name, tensors, what):
    for t, array in tensors.items():
        p = run("cat", "--tensor", t, f"{store}:{name}", ok=False)
        equal(p.stdout, array.tobytes(), f"{what}: {t}")


def main():
    rng = np.random.default_rng(5)
    one = {f"w{i}": rng.standard_normal((100 + i, 33)).astype(np.float32)
           for i in range(20)}
    two = {f"w{i}": rng.standard_normal((100 + i, 33)).astype(np.float32)
           for i in range(20)}
    with folder() as tmp:
        safetensors.numpy.save_file(one, tmp / "one.safetensors")
        safetensors.numpy.save_file(two, tmp / "two.safetensors")
        store = new_store(tmp)
        # 20 tensors of one tile, and the header that is kept
        first = imported(tmp / "one.safetensors", f"{store}:a")
        equal(first["new_chunks"], 21, "the first import is new")
        before = packs(store)
        again = imported(tmp / "one.safetensors", f"{store}:b")
        equal((again["new_chunks"], again["new_bytes"]), (0, 0),
              "the same model again is nothing new")
        equal(packs(store), before, "no pack was written")
        old = (store / "index.db").read_bytes()

        drop_index(store)
        all_reads(store, "a", one, "without an index")
        all_reads(store, "b", one, "without an index")
        r = json.loads(run("reindex", "--json", store).stdout)
        equal((r["packs"], r["chunks"], r["checkpoints"], r["skipped"]),
              (1, 21, 2, 0), "reindex counts")
        equal(imported(tmp / "one.safetensors", f"{store}:c")["new_chunks"],
              0, "nothing new after reindex")

        # an index of an older time: knows nothing of `two`
        imported(tmp / "two.safetensors", f"{store}:two")
        drop_index(store)
        (store / "index.db").write_bytes(old)
        r = imported(tmp / "one.safetensors", f"{store}:d")
        equal(r["new_chunks"], 0, "an old index still serves what it knows")
        imported(tmp / "two.safetensors", f"{store}:two2")
        all_reads(store, "two2", two, "after an old index")

        # an index of another store
        other = new_store(tmp, "other")
        imported(tmp / "two.safetensors", f"{other}:x")
        drop_index(store)
        shutil.copy(other / "index.db", store / "index.db")
        imported(tmp / "two.safetensors", f"{store}:e")
        imported(tmp / "one.safetensors", f"{store}:f")
        all_reads(store, "e", two, "after another store's index")
        all_reads(store, "f", one, "after another store's index")

        # rubbish
        drop_index(store)
        (store / "index.db").write_bytes(os.urandom(20000))
        imported(tmp / "one.safetensors", f"{store}:g")
        all_reads(store, "g", one, "after a rubbish index")
        (store / "index.db").write_bytes(os.urandom(20000))
        run("reindex", store)
        equal(imported(tmp / "one.safetensors", f"{store}:h")["new_chunks"],
              0, "nothing new after reindex over rubbish")
        check(b"no damage" in run("check", "--full", store).stdout,
              "check --full is clean")

        # a store whose pack the index names is gone: a miss, not a wrong hit
        gone = new_store(tmp, "gone")
        imported(tmp / "one.safetensors", f"{gone}:a")
        next(gone.glob("packs/*/*.pack")).unlink()
        equal(imported(tmp / "one.safetensors", f"{gone}:b")["new_chunks"],
              21, "a hit whose pack is gone does not count")
        all_reads(gone, "b", one, "after its pack was lost")
    done()


main()
