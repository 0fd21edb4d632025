# SPDX-License-Identifier: Apache-2.0
"""Names as people give them: slashes beside dots, characters that others take
for patterns, accents in two forms, bytes that are no UTF-8. Each reads back by
its own name, and nothing else is touched."""
import json
import os
import shutil

from ckptest import *

import numpy as np
import safetensors.numpy

ODD = "bs=8_data=[[1],[2,3]]+x?*"
NFC, NFD = "caf\u00e9", "cafe\u0301"


def imported(tmp, names, place):
    """Each tensor holds its own number; {name: bytes}."""
    arrays = {n: np.full(3, i, np.int32) for i, n in enumerate(names)}
    safetensors.numpy.save_file(arrays, tmp / "n.safetensors")
    run("import", tmp / "n.safetensors", place)
    return {n: a.tobytes() for n, a in arrays.items()}


def shown(point, checkpoint):
    """{name by xattr: the bytes} of every .npy of a checkpoint."""
    out = {}
    for folder, _, files in os.walk(os.fsencode(point / checkpoint)):
        for f in files:
            path = os.path.join(folder, f)
            if f.endswith(b".npy"):
                name = os.getxattr(path, "user.ckptfs.tensor").decode()
                out[name] = npy_body(open(path, "rb").read())
    return out


def slashes(store, tmp):
    """name-01: 'a' beside 'a/b' and 'a.b', with either separator."""
    want = imported(tmp, ["test/test", "a/~/foo", "a", "a/b", "a.b", "a.~.foo",
                          "a%2Fb"], f"{store}:slash/st")
    (tmp / "npy/a/~").mkdir(parents=True)
    (tmp / "npy/test").mkdir()
    files = ["test/test", "a/~/foo", "a", "a/b", "a.b"]
    for i, n in enumerate(files):
        np.save(tmp / f"npy/{n}.npy", np.full(3, i, np.int32))
    run("import", tmp / "npy", f"{store}:slash/npy")
    by_file = {n: np.full(3, i, np.int32).tobytes()
               for i, n in enumerate(files)}
    for name, tensors, separator in (("slash/st", want, "."),
                                     ("slash/npy", by_file, "/")):
        for n, data in tensors.items():
            got = run("cat", "--tensor", n, f"{store}:{name}").stdout
            equal(got, data, f"cat --tensor {n} of {name}")
        listed = json.loads(run("show", "--json", f"{store}:{name}/model")
                            .stdout)["tensors"]
        equal(sorted(t["name"] for t in listed), sorted(tensors),
              f"{name} lists the original names")
        with mounted(store, None, "-o", "xattr") as point:
            equal(shown(point, name), tensors, f"{name} in the mount")
            for n, data in tensors.items():
                path = os.fsencode(point) + f"/{name}/model/".encode() + \
                    tree_path(n, separator=separator)
                equal(npy_body(open(path, "rb").read()), data,
                      f"{n} stands where the grammar says")


def patterns(tmp):
    """name-03: a store and a checkpoint whose names look like patterns,
    among those that these patterns would match."""
    (tmp / "s=[[1],[2,3]]+x?*").mkdir()
    (tmp / "s=1+xy").mkdir()
    store = new_store(tmp / "s=[[1],[2,3]]+x?*", "%s_[a]*'")
    decoys = ["bs=8_data=[1+xyz", "bs=8_data=2]+xab", "bs=8_data=,]+x1",
              "bs_8_data=[[1],[2,3]]+x?*", ODD + "x", ODD[:-1], "[ab]", "a",
              "b", "a%", "ab", "a_", "*"]
    for i, n in enumerate([ODD, *decoys]):
        imported(tmp, [f"t{i}"], f"{store}:run/{n}")

    def names():
        found = json.loads(run("log", "--json", store).stdout)
        return sorted(c["name"][len("run/"):] for c in found["checkpoints"])
    left = sorted([ODD, *decoys])
    equal(names(), left, "all are listed")
    equal(len(run("cat", "--tensor", "t0", f"{store}:run/{ODD}").stdout), 12,
          "it reads")
    with mounted(store) as point:
        equal(sorted(set(os.listdir(point / "run")) - {"latest", "newest"}),
              left, "the mount lists all")
        equal(len(np.load(point / f"run/{ODD}/model/t0.npy")), 3, "its file")
    for victim in (ODD, "[ab]", "a%", "a_", "*"):
        run("mv", f"{store}:run/{victim}", f"{store}:run/moved")
        left = sorted({*left, "moved"} - {victim})
        equal(names(), left, f"mv of {victim} moved only that")
        run("mv", f"{store}:run/moved", f"{store}:run/{victim}")
        run("rm", f"{store}:run/{victim}")
        left = sorted(set(left) - {"moved"})
        equal(names(), left, f"rm of {victim} removed only that")
    equal(os.listdir(tmp / "s=1+xy"), [], "nothing beside the store")
    check(b"no damage" in run("check", "--full", store).stdout, "check")


def other_scripts(tmp):
    """name-04: bytes are kept; NFC and NFD are two names."""
    top = tmp / f"\u6a21\u578b-{NFC}-{NFD}"
    top.mkdir()
    store = new_store(top)
    tensors = [NFC, NFD, "\u91cd\u307f.\u6a2a", "\U0001f600"]
    for n in (NFC, NFD):
        want = imported(tmp, tensors, f"{store}:{n}/\u6a21")
        for t, data in want.items():
            got = run("cat", "--tensor", t, f"{store}:{n}/\u6a21").stdout
            equal(got, data, f"tensor {t!a} of {n!a}")
    equal(sorted(os.listdir(os.fsencode(store / "checkpoints"))),
          sorted([NFC.encode(), NFD.encode()]), "two runs, byte for byte")
    out = run("ls", "--json", "-R", store).stdout
    named = {e["name"] for e in json.loads(out)["entries"]}
    check({f"{NFC}/\u6a21", f"{NFD}/\u6a21"} <= named, f"--json: {named}")
    with mounted(store, None, "-o", "xattr") as point:
        check({NFC.encode(), NFD.encode()} <= set(os.listdir(
            os.fsencode(point))), "the mount lists both")
        equal(shown(point, f"{NFD}/\u6a21"), want, "its tensors")
    # a path that is no UTF-8 at all
    raw = os.fsencode(tmp) + b"/\xff\xfe"
    os.mkdir(raw)
    shutil.copy(tmp / "n.safetensors", raw + b"/\xe9.safetensors")
    run("init", raw + b"/s")
    run("import", raw + b"/\xe9.safetensors", raw + b"/s:x")
    equal(run("cat", "--tensor", NFD, raw + b"/s:x").stdout, want[NFD],
          "a store under bytes that are no UTF-8")
    for argv in (["log"], ["stat"], ["ls", "-R"], ["check"]):
        json.loads(run(argv[0], "--json", *argv[1:], raw + b"/s").stdout)
    # but no name for JSON may be so
    p = run("import", tmp / "n.safetensors", raw + b"/s:a\xffb", ok=False)
    check("UTF-8" in one_sentence(p, "a name of no UTF-8"), p.stderr)
    p = run("mv", raw + b"/s:x", raw + b"/s:\xed\xa0\x80", ok=False)
    one_sentence(p, "a lone surrogate")
    equal(os.listdir(raw + b"/s/checkpoints"), [b"x"], "nothing else is there")
    os.makedirs(raw + b"/npy")
    np.save(os.fsdecode(raw + b"/npy/\xff.npy"), np.arange(3))
    p = run("import", raw + b"/npy", raw + b"/s:npy", ok=False)
    check("UTF-8" in one_sentence(p, "a tensor's name of no UTF-8"), p.stderr)


def main():
    need_fuse()
    with folder() as tmp:
        slashes(new_store(tmp), tmp)
        patterns(tmp)
        other_scripts(tmp)
    done()


main()
