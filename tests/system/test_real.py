# SPDX-License-Identifier: Apache-2.0
"""The real model: every tensor NumPy reads from the mount equals what the
safetensors library reads; hashes and slices as the fixtures say."""
import os
import subprocess
import sys

from ckptest import *

import numpy as np
import safetensors.numpy


def slices(point, rows):
    for line in rows.read_text().splitlines():
        name, dtype, shape, box, nbytes, want = line.split("\t")
        array = np.load(os.fsdecode(os.fsencode(point) + b"/" +
                                    tree_path(name)), mmap_mode="r")
        cut = tuple(slice(*map(int, part.split(":")))
                    for part in box[1:-1].split(",")) if box != "[]" else ()
        part = np.ascontiguousarray(array[cut])
        equal(part.nbytes, int(nbytes), f"slice {name}{box}")
        equal(sha(part.tobytes()), want, f"slice {name}{box}")


def main():
    need_fuse()
    model = real_model()
    with folder() as tmp:
        store = new_store(tmp)
        run("import", model, f"{store}:all-minilm")
        want = safetensors.numpy.load_file(model)
        fixture = FIXTURES / "real/minilm"
        check((fixture / "slices.tsv").exists() and
              (fixture / "expected.tsv").exists(),
              f"the expected values are not at {fixture}")
        with mounted(store) as point:
            base = os.fsencode(point / "all-minilm/model") + b"/"
            for name, array in want.items():
                got = np.load(os.fsdecode(base + tree_path(name)))
                check(got.dtype == array.dtype and
                      np.array_equal(got, array), f"{name} equals")
            slices(point / "all-minilm/model", fixture / "slices.tsv")
        for name, _, _, _, digest in expected(fixture / "expected.tsv"):
            p = run("cat", "--tensor", name, f"{store}:all-minilm")
            equal(sha(p.stdout), digest, f"cat {name}")
        p = subprocess.run([sys.executable, READER, "verify", store],
                           stdout=subprocess.PIPE)
        equal(p.returncode, 0, "reader.py verify")
        print(len(want), "tensors")
    done()


main()
