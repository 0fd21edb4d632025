# SPDX-License-Identifier: Apache-2.0
"""Damage is told, never served: flipped bytes in packs and manifests,
truncated and missing packs. The rest still reads."""
import errno
import os
import random
import signal
import subprocess
import sys

from ckptest import *

import numpy as np
import safetensors.numpy

TENSORS = {
    "alpha": np.arange(300000, dtype=np.float32),
    "beta.small": np.arange(10, dtype=np.int64),
    "gamma": np.arange(700 * 900, dtype=np.float64).reshape(700, 900),
}


def read(path):
    try:
        return open(path, "rb").read()
    except OSError as e:
        return e.errno


def flip(path, off):
    with open(path, "r+b") as f:
        f.seek(off)
        byte = f.read(1)[0]
        f.seek(off)
        f.write(bytes([byte ^ 0x40]))


def flipped_payload(store, tmp):
    """The bytes of gamma's first row are found in the pack and flipped."""
    pack = next(store.glob("packs/*/*.pack"))
    where = pack.read_bytes().find(TENSORS["gamma"][3, 5:60].tobytes())
    check(where > 0, "gamma's bytes lie in the pack")
    flip(pack, where)
    with mounted(store) as point:
        base = point / "run/1/model"
        equal(read(base / "gamma.npy"), errno.EIO, "gamma is EIO")
        check(np.array_equal(np.load(base / "alpha.npy"), TENSORS["alpha"]),
              "alpha still reads")
        check(np.array_equal(np.load(base / "beta/small.npy"),
                             TENSORS["beta.small"]), "beta still reads")
    p = run("check", "--full", store, ok=False)
    equal(p.returncode, 3, "check --full exits 3")
    said = p.stdout.decode()
    rel = str(pack.relative_to(store))
    for word in ("run/1", "model/gamma", "[0:", rel):
        check(word in said, f"check names {word}: {said}")
    check(any(ch.isdigit() for ch in said), "check names the offset")
    p = run("cat", f"{store}:run/1/model/gamma.npy", ok=False)
    equal(p.returncode, 3, "cat exits 3")
    text = one_sentence(p, "cat of a damaged tensor")
    for word in ("run/1", "gamma", rel, "offset"):
        check(word in text, f"cat names {word}: {text}")
    # the bad chunk is never reused: saving again heals the new checkpoint
    check(len(os.listdir(store / "bad")) > 0, "the chunk is listed in bad/")
    run("import", tmp / "m.safetensors", f"{store}:run/2")
    p = run("cat", "--tensor", "gamma", f"{store}:run/2")
    equal(p.stdout, TENSORS["gamma"].tobytes(), "a new save reads whole")


def mapped(make):
    """Who mapped a file is told by a signal, as mmap(2) says."""
    store = make("mapped")
    pack = next(store.glob("packs/*/*.pack"))
    flip(pack, pack.read_bytes().find(TENSORS["gamma"][650, 5:60].tobytes()))
    script = ("import sys, numpy\n"
              "a = numpy.load(sys.argv[1], mmap_mode='r')\n"
              "print(a[0, 1], flush=True)\nprint(a.sum())")
    with mounted(store) as point:
        p = subprocess.run(
            [sys.executable, "-c", script, point / "run/1/model/gamma.npy"],
            stdout=subprocess.PIPE)
    equal((p.returncode, p.stdout), (-signal.SIGBUS, b"1.0\n"),
          "a mapped file: what is whole is read, then SIGBUS")


def every_region(make):
    """One flip at many places of the pack: check --full always finds it."""
    store = make("regions")
    pack = next(store.glob("packs/*/*.pack"))
    size = pack.stat().st_size
    rng = random.Random(7)
    spots = list(range(0, 64, 9)) + [size - 1 - i for i in range(0, 140, 13)]
    spots += [rng.randrange(size) for _ in range(25)]
    for off in spots:
        flip(pack, off)
        p = run("check", "--full", store, ok=False)
        equal(p.returncode, 3, f"flip at {off} of {size} is found")
        flip(pack, off)
        for note in (store / "bad").iterdir():
            note.unlink()
    p = run("check", "--full", store)
    check(b"no damage" in p.stdout, "whole again")


def manifest_flips(make):
    store = make("manifest")
    path = store / "checkpoints/run/1"
    whole = path.read_bytes()
    rng = random.Random(11)
    spots = list(range(0, 110, 7)) + [rng.randrange(len(whole))
                                      for _ in range(40)]
    for off in spots:
        flip(path, off)
        p = run("check", f"{store}", ok=False)
        equal(p.returncode, 3, f"manifest flip at {off} is found")
        for name, array in TENSORS.items():
            p = run("cat", "--tensor", name, f"{store}:run/1", ok=False)
            check(p.returncode != 0 or p.stdout == array.tobytes(),
                  f"manifest flip at {off}: {name} is right or an error")
            if p.returncode != 0:
                one_sentence(p, f"manifest flip at {off}")
        path.write_bytes(whole)
    path.write_bytes(whole[:-1000])
    one_sentence(run("cat", "--tensor", "alpha", f"{store}:run/1", ok=False),
                 "a truncated manifest")
    with mounted(store) as point:
        equal(read(point / "run/1/model/alpha.npy"), errno.EIO,
              "a truncated manifest is EIO in the mount")
        check("1" in os.listdir(point / "run"), "its name is still listed")
    path.write_bytes(b"")
    one_sentence(run("cat", "--tensor", "alpha", f"{store}:run/1", ok=False),
                 "an empty manifest")


def packs_gone(make):
    store = make("cut")
    pack = next(store.glob("packs/*/*.pack"))
    with open(pack, "r+b") as f:
        f.truncate(pack.stat().st_size // 2)
    equal(run("check", store, ok=False).returncode, 3, "a truncated pack")
    bad = 0
    for name, array in TENSORS.items():
        p = run("cat", "--tensor", name, f"{store}:run/1", ok=False)
        check(p.returncode != 0 or p.stdout == array.tobytes(),
              f"truncated pack: {name} is right or an error")
        bad += p.returncode != 0
    check(bad > 0, "a truncated pack loses something")
    pack.unlink()
    p = run("check", store, ok=False)
    equal(p.returncode, 3, "a missing pack")
    check(str(pack.relative_to(store)) in p.stdout.decode(), "it is named")
    p = run("cat", "--tensor", "alpha", f"{store}:run/1", ok=False)
    text = one_sentence(p, "a missing pack")
    check("missing" in text and "pack" in text, text)
    with mounted(store) as point:
        equal(read(point / "run/1/model/alpha.npy"), errno.EIO,
              "a missing pack is EIO")
        check(os.stat(point / "run/1/model/alpha.npy").st_size ==
              TENSORS["alpha"].nbytes + 128, "sizes need no pack")


def the_store_itself(tmp):
    store = new_store(tmp, "itself")
    for option in ("--since=2d", "--step=3"):
        check(b"no damage" in run("check", option, store).stdout,
              f"{option} chooses nothing of an empty store")
    path = store / "ckptfs.json"
    path.chmod(0o600)
    path.write_text("{")
    for argv in (["check", store], ["ls", store]):
        p = run(*argv, ok=False)
        equal(p.returncode, 3, f"{argv[0]} of a store whose own facts are torn")
        check("ckptfs.json is damaged" in one_sentence(p, argv[0]), p.stderr)


def main():
    need_fuse()
    with folder() as tmp:
        safetensors.numpy.save_file(TENSORS, tmp / "m.safetensors")

        def make(name):
            store = new_store(tmp, name)
            run("import", "--codec", "raw", tmp / "m.safetensors",
                f"{store}:run/1")
            return store

        flipped_payload(make("payload"), tmp)
        mapped(make)
        every_region(make)
        manifest_flips(make)
        packs_gone(make)
        the_store_itself(tmp)
    done()


main()
