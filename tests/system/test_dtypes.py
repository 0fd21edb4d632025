# SPDX-License-Identifier: Apache-2.0
"""Dtypes from file to array: what NumPy has no name for still opens and keeps
its bits, what no tensor can hold is refused by name, byte orders end little."""
import io
import json
import os
import subprocess
import sys
import zipfile

from ckptest import *

import numpy as np

# safetensors' code -> bits; each is saved in shape [8].
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32,
        "I32": 32, "U64": 64, "I64": 64, "F16": 16, "BF16": 16, "F32": 32,
        "F64": 64, "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E5M2FNUZ": 8,
        "F8_E4M3FNUZ": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}
NUMPY = {"BOOL": "bool", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2",
         "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2",
         "F32": "<f4", "F64": "<f8", "C64": "<c8"}


def st_file(path, tensors):
    """A safetensors file of {name: (dtype, shape, bytes)}, by hand."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def npy_of(store, place):
    return run("cat", f"{store}:{place}.npy").stdout


def every_dtype(store, tmp):
    """dtype-04, dtype-05: each has its size, its bytes and its label."""
    rng = np.random.default_rng(1)
    tensors = {code: (code, [8], rng.integers(0, 2 if code == "BOOL" else 256,
                                              bits, np.uint8).tobytes())
               for code, bits in BITS.items()}
    run("import", st_file(tmp / "m.safetensors", tensors), f"{store}:all")
    rows = json.loads(run("show", "--json", f"{store}:all/model").stdout)
    equal({t["name"]: (t["dtype"], t["shape"], t["bytes"])
           for t in rows["tensors"]},
          {c: (c, [8], bits) for c, bits in BITS.items()}, "sizes")
    for code, (_, _, data) in tensors.items():
        equal(run("cat", "--tensor", code, f"{store}:all").stdout, data,
              f"bytes of {code}")
        if code in NUMPY:
            got = np.load(io.BytesIO(npy_of(store, f"all/model/{code}")))
            equal((got.dtype, got.tobytes()), (np.dtype(NUMPY[code]), data),
                  f".npy of {code}")


def no_name_in_numpy(store, tmp):
    """dtype-01, dtype-02: a plain numpy.load opens them, as no float and no
    pickle; the bits are those saved."""
    kinds = {"bf16": ("BF16", "0000803f00404040", "V2"),
             "f16": ("F16", "0000003c00400042", "<f2")}
    for code in ("F8_E4M3", "F8_E5M2", "F8_E5M2FNUZ", "F8_E4M3FNUZ",
                 "F8_E8M0"):
        kinds[code] = (code, "00387f80ff01", "V1")
    tensors = {n: (c, [len(h) // 2 // (BITS[c] // 8)], bytes.fromhex(h))
               for n, (c, h, _) in kinds.items()}
    run("import", st_file(tmp / "m.safetensors", tensors), f"{store}:odd")
    run("export", f"{store}:odd/model", tmp / "odd")
    # NumPy alone, in a process of its own
    code = ("import sys, numpy\nfor f in sys.argv[1:]:\n"
            " a = numpy.load(f)\n print(a.dtype.str, a.tobytes().hex())")
    p = subprocess.run([sys.executable, "-c", code,
                        *(tmp / f"odd/{n}.npy" for n in kinds)],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(p.returncode, 0, f"numpy.load: {p.stderr.decode()[-300:]}")
    for (name, (dtype, text, kind)), line in zip(
            kinds.items(), p.stdout.decode().splitlines(), strict=True):
        descr, bits = line.split()
        equal((np.dtype(descr), bits), (np.dtype(kind), text), name)
        said = run("cat", f"{store}:odd/model/{name}.txt").stdout
        check(dtype.encode() in said.split(), f".txt of {name}: {said}")
    # widened by hand: bfloat16 is the upper half of a float32
    raw = np.load(tmp / "odd/bf16.npy").view("<u2").astype("<u4") << 16
    equal(raw.view("<f4").tolist(), [0, 1, 2, 3], "bf16 as numbers")
    # what NumPy calls <V2 is BF16 again, and an F16 is none
    for name, want in (("bf16", "BF16"), ("f16", "F16")):
        run("import", tmp / f"odd/{name}.npy", f"{store}:back/{name}")
        got = json.loads(run("show", "--json",
                             f"{store}:back/{name}/model/{name}").stdout)
        equal(got["dtype"], want, f"{name} comes back")


def unknown(store, tmp):
    """dtype-03: refused with the tensor's and the dtype's name."""
    for dtype, size in (("F6_X", 3), ("F8_E3M4", 4), ("f32", 16), ("", 4),
                        ("float32", 16)):
        st_file(tmp / "m.safetensors",
                {"known": ("F32", [1], bytes(4)),
                 "strange": (dtype, [4], bytes(size))})
        p = run("import", tmp / "m.safetensors", f"{store}:unknown", ok=False)
        text = one_sentence(p, f"dtype {dtype!r}")
        check("'strange'" in text and f"'{dtype}'" in text, text)
        check(run("ls", f"{store}:unknown", ok=False).returncode != 0,
              "nothing is published")
    equal(os.listdir(store / "staging"), [], "no staging is left")


def byte_orders(store, tmp):
    """dtype-09: whatever the file's order, the store's is little."""
    (tmp / "orders").mkdir()
    values = np.array([0, 1, 2, 3, 100, 127] * 2).reshape(3, 4)
    want = {}
    for kind in ("f4", "i2", "f2", "i4", "i8", "f8", "u2", "u4", "u8", "c8",
                 "c16", "i1", "u1", "b1"):
        a = (values * (1 + 2j) if kind[0] == "c" else values).astype(kind)
        for order, name in (("<", "little"), (">", "big")):
            b = a.astype(np.dtype(kind).newbyteorder(order))
            np.save(tmp / f"orders/{kind}{name}C.npy", b)
            np.save(tmp / f"orders/{kind}{name}F.npy", np.asfortranarray(b))
            for c in "CF":
                want[f"{kind}{name}{c}"] = a.astype(
                    np.dtype(kind).newbyteorder("<"))
    run("import", tmp / "orders", f"{store}:order")
    run("export", f"{store}:order/model", tmp / "out")
    for name, a in want.items():
        got = np.load(tmp / f"out/{name}.npy")
        equal((got.dtype, got.tobytes()), (a.dtype, a.tobytes()), name)


def torch_archives(store, tmp):
    """dtype-10: none is read, whatever its byte order is said to be."""
    for order in (None, b"little", b"big", b"middle"):
        with zipfile.ZipFile(tmp / "model.pt", "w") as z:
            z.writestr("model/data.pkl", b"\x80\x02}q\x00.")
            if order:
                z.writestr("model/byteorder", order)
            z.writestr("model/data/0", bytes(16))
        p = run("import", tmp / "model.pt", f"{store}:pt", ok=False)
        text = one_sentence(p, f"a torch archive, {order}")
        check("torch.save" in text or os.environ.get("CKPTFS_NPZ") == "0",
              text)
        check(run("ls", f"{store}:pt", ok=False).returncode != 0, "nothing")


def main():
    with folder() as tmp:
        store = new_store(tmp)
        every_dtype(store, tmp)
        no_name_in_numpy(store, tmp)
        unknown(store, tmp)
        byte_orders(store, tmp)
        torch_archives(store, tmp)
    done()


main()
