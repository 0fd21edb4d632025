# SPDX-License-Identifier: Apache-2.0
"""A store that several people use: modes by umask, groups by folder, a second
user who adds to it and shares the first one's chunks, and saves at once."""
import json
import os
import stat
import subprocess
import sys

from ckptest import *
from mounts import *

import numpy as np
import safetensors.numpy

program = PROGRAM
GROUP = 54321  # no names are needed
ANNA, BEN, CARL = 54301, 54302, 54303


def as_user(uid, mask, *args, groups=(GROUP,), ok=True):
    """The program as a user whose own group is another."""
    def drop():
        os.setgroups(list(groups))
        os.setgid(uid)
        os.setuid(uid)
        os.umask(mask)
    return run(*args, ok=ok, program=program, preexec_fn=drop, cwd="/")


def modes(top):
    """{path: (mode, gid)} of all that is in a store."""
    out = {}
    for p in [top, *top.rglob("*")]:
        st = p.lstat()
        out[str(p.relative_to(top))] = (stat.S_IMODE(st.st_mode), st.st_gid,
                                        stat.S_ISDIR(st.st_mode))
    return out


def follow_the_umask(tmp, file):
    """perm-01: nothing has a mode of its own; setgid folders give theirs."""
    for mask in (0o022, 0o007, 0o077, 0o002):
        for setgid in (False, True):
            top = tmp / f"u{mask:o}{setgid}"
            top.mkdir()
            os.chown(top, ANNA, GROUP)
            os.chmod(top, 0o2775 if setgid else 0o775)
            store = top / "store"
            as_user(ANNA, mask, "init", store)
            for name in ("run/1", "run/2"):
                as_user(ANNA, mask, "import", file, f"{store}:{name}")
            as_user(ANNA, mask, "tag", f"{store}:run/1", "best")
            as_user(ANNA, mask, "cp", f"{store}:run/1", f"{store}:a/b")
            as_user(ANNA, mask, "mv", f"{store}:a/b", f"{store}:a/c")
            as_user(ANNA, mask, "reindex", store)
            bits = 0o2000 if setgid else 0
            found = modes(store)
            check(any(p.endswith(".pack") for p in found) and
                  "index.db" in found and "checkpoints/a/c" in found,
                  f"it has all: {sorted(found)}")
            for path, (mode, gid, is_folder) in found.items():
                want = (0o777 | bits) if is_folder else 0o666
                equal((oct(mode), gid),
                      (oct(want & ~mask), GROUP if setgid else ANNA),
                      f"umask {mask:o}, setgid {setgid}: {path}")
            p = as_user(CARL, 0o022, "cat", "--tensor", "w",
                        f"{store}:run/1", groups=(), ok=False)
            equal(p.returncode == 0, mask & 7 == 2, f"another reads, {mask:o}")
            p = as_user(BEN, 0o022, "cat", "--tensor", "w", f"{store}:run/2",
                        ok=False)
            equal(p.returncode == 0, mask & 7 == 2 or (
                setgid and mask & 0o70 == 0), f"the group reads, {mask:o}")
            if p.returncode != 0:
                check("ermission denied" in one_sentence(p, "closed"),
                      p.stderr)


def mount_modes(store):
    """The mount's modes are its own, whatever the store's."""
    with mounted(store) as point:
        for p in (point, *point.rglob("*")):
            if not p.is_symlink():
                equal(oct(stat.S_IMODE(p.stat().st_mode)),
                      oct(0o555 if p.is_dir() else 0o444), f"{p}")


def two_users(tmp, file, other):
    """perm-02: the second one's save is a reference to the first one's."""
    top = tmp / "shared"
    top.mkdir()
    os.chown(top, 0, GROUP)
    os.chmod(top, 0o2770)
    store = top / "store"
    as_user(ANNA, 0o007, "init", store)
    as_user(ANNA, 0o007, "import", file, f"{store}:run/1")
    packs = sorted(store.glob("packs/*/*.pack"))
    p = as_user(BEN, 0o007, "import", "--json", file, f"{store}:run/2")
    equal(json.loads(p.stdout)["new_chunks"], 0, "BEN's chunks are ANNA's")
    equal(sorted(store.glob("packs/*/*.pack")), packs, "no pack more")
    p = as_user(BEN, 0o007, "import", "--json", other, f"{store}:ben/1")
    check(json.loads(p.stdout)["new_chunks"] > 0, "and new ones of his own")
    p = as_user(ANNA, 0o007, "import", "--json", other, f"{store}:run/3")
    equal(json.loads(p.stdout)["new_chunks"], 0, "which ANNA shares")
    for uid, argv in ((BEN, ("tag", f"{store}:run/1", "best")),
                      (ANNA, ("tag", f"{store}:ben/1", "best")),
                      (BEN, ("mv", f"{store}:run/1", f"{store}:run/9")),
                      (ANNA, ("cp", f"{store}:ben/1", f"{store}:ben/2")),
                      (BEN, ("rm", f"{store}:run/3")),
                      (ANNA, ("reindex", store)),
                      (BEN, ("check", "--full", store)),
                      (BEN, ("import", "--replace", other,
                             f"{store}:run/2"))):
        as_user(uid, 0o007, *argv)
    for uid in (ANNA, BEN):
        names = json.loads(as_user(uid, 0o007, "log", "--json", store).stdout)
        equal(sorted(c["name"] for c in names["checkpoints"]),
              ["ben/1", "ben/2", "run/2", "run/9"], f"what {uid} sees")
    p = as_user(CARL, 0o007, "import", file, f"{store}:c", groups=(),
                ok=False)
    check("ermission denied" in one_sentence(p, "a stranger"), p.stderr)
    equal(os.listdir(store / "staging"), [], "no staging is left")
    # who may read but not write adds nothing, and is told why
    os.chmod(top, 0o2775)
    subprocess.run(["chmod", "-R", "o+rX", store], check=True)
    equal(len(as_user(CARL, 0o007, "cat", "--tensor", "w", f"{store}:run/9",
                      groups=()).stdout), 40000, "CARL reads")
    p = as_user(CARL, 0o007, "import", file, f"{store}:c", groups=(),
                ok=False)
    check("ermission denied" in one_sentence(p, "a reader"), p.stderr)


def at_once(tmp, file):
    """mount-12: the same bytes from two processes at once; what is there
    already is never replaced, both checkpoints are whole."""
    store = new_store(tmp, "at-once")
    run("import", file, f"{store}:old")

    def facts():
        return {p: (p.stat().st_ino, p.stat().st_mtime_ns, sha(p.read_bytes()))
                for p in store.glob("packs/*/*.pack")}
    big = np.arange(1 << 20, dtype=np.float32)
    for turn in range(4):
        before = facts()
        safetensors.numpy.save_file({"w": big + turn}, tmp / "b.safetensors")
        many = [subprocess.Popen([PROGRAM, "import", "-q",
                                  tmp / "b.safetensors",
                                  f"{store}:t{turn}/{i}"],
                                 stderr=subprocess.PIPE) for i in range(4)]
        for p in many:
            said = p.communicate(timeout=60)[1]
            equal((p.returncode, said), (0, b""), "saves at once")
        after = facts()
        equal({p: after.get(p) for p in before}, before,
              "older packs are as they were")
        for i in range(4):
            got = run("cat", "--tensor", "w", f"{store}:t{turn}/{i}").stdout
            equal(sha(got), sha((big + turn).tobytes()), f"t{turn}/{i}")
    check(b"no damage" in run("check", "--full", store).stdout, "check")
    stats = json.loads(run("stat", "--json", store).stdout)
    equal(stats["checkpoints"], 17, "all are there")
    equal(os.listdir(store / "staging"), [], "no staging is left")


def main():
    need_fuse()
    need_root()
    global program
    with folder() as tmp:
        program = for_others(tmp)
        w = np.arange(10000, dtype=np.float32)
        file, other = tmp / "m.safetensors", tmp / "o.safetensors"
        safetensors.numpy.save_file({"w": w}, file)
        safetensors.numpy.save_file({"w": w + 1}, other)
        for path in (file, other):  # which that library makes 0600
            os.chmod(path, 0o644)
        follow_the_umask(tmp, file)
        mount_modes(tmp / "u77False/store")
        two_users(tmp, file, other)
        at_once(tmp, file)
    done()


main()
