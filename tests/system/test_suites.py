# SPDX-License-Identifier: Apache-2.0
"""Public suites on the mount: fio verifies the blocks it wrote before they were
imported; stress-ng storms the tree with stat calls. (fio's mmap engine is left
out: it maps wrongly at a .npy's offset of 128, on plain files too.)"""
import json
import os
import subprocess

from ckptest import *
from mounts import *

HEAD, SIZE = 128, 32 << 20


def fio(path, rw, engine, *more):
    return subprocess.run(
        ["fio", "--name=job", f"--filename={path}", f"--offset={HEAD}",
         f"--size={SIZE}", "--bs=4k", f"--rw={rw}", f"--ioengine={engine}",
         "--verify=crc32c", "--verify_state_save=0", "--randrepeat=1",
         "--thread",
         "--output-format=json", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def write_blocks(tmp):
    """A file whose bytes after HEAD are fio's; the tensor is those bytes."""
    plain = tmp / "plain"
    with open(plain, "wb") as f:
        f.truncate(HEAD + SIZE)
    p = fio(plain, "write", "psync", "--do_verify=0")
    equal(p.returncode, 0, f"fio writes: {p.stderr.decode()[:200]}")
    header = json.dumps({"w": {"dtype": "U8", "shape": [SIZE],
                               "data_offsets": [0, SIZE]},
                         "other": {"dtype": "U8", "shape": [SIZE],
                                   "data_offsets": [SIZE, 2 * SIZE]}})
    header = header.encode() + b" " * (-len(header) % 8)
    with open(tmp / "m.safetensors", "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.write(plain.read_bytes()[HEAD:])
        f.write(bytes(SIZE))


def verified(point):
    for engine in ("psync", "pvsync2", "libaio"):
        for rw in ("read", "randread"):
            p = fio(point / "x/model/w.npy", rw, engine, "--readonly",
                    "--iodepth=8")
            equal(p.returncode, 0,
                  f"fio {engine} {rw}: {p.stderr.decode()[:300]}")
            text = p.stdout[p.stdout.find(b"{"):]  # a note may come first
            ios = json.loads(text)["jobs"][0]["read"]["total_ios"]
            equal(ios, SIZE // 4096, f"fio {engine} {rw} read all")
    p = fio(point / "x/model/other.npy", "read", "psync", "--readonly")
    check(p.returncode != 0, "fio would find other bytes")


def stormed(point):
    p = subprocess.run(["stress-ng", "--fstat", "4", "--fstat-dir",
                        point / "x/model", "--fstat-ops", "20000",
                        "--timeout", "60", "--metrics-brief"],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       cwd="/tmp")
    text = p.stdout.decode()
    equal(p.returncode, 0, f"stress-ng --fstat: {text[-500:]}")
    check("fstat" in text and "fail:" not in text, text[-500:])
    equal(status(point)["errors"], 0, "errors")


def main():
    need_fuse()
    need("fio", "stress-ng")
    with folder() as tmp:
        write_blocks(tmp)
        store = new_store(tmp)
        run("import", "-q", tmp / "m.safetensors", f"{store}:x")
        with mounted(store) as point:
            verified(point)
            stormed(point)
    done()


main()
