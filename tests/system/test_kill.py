# SPDX-License-Identifier: Apache-2.0
"""kill -9 during an import at 50 random moments (S4, commit-01); Ctrl-C and
kill during import and export, a full disk, and a destination that appears:
they take back what was begun."""
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import time

from ckptest import *
from mounts import wait_for

import numpy as np
import safetensors.numpy

ROUNDS = 50


def listed(store):
    p = run("ls", f"{store}:run", ok=False)
    return p.stdout.decode().split() if p.returncode == 0 else []


def interrupted(tmp, store):
    """A file of 16 GiB, most of it a hole: never done before the signal."""
    file = tmp / "hole.safetensors"
    head = (b'{"w":{"dtype":"U8","shape":[17179869184],'
            b'"data_offsets":[0,17179869184]}}')
    with open(file, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        f.truncate(8 + len(head) + (16 << 30))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        p = subprocess.Popen([PROGRAM, "import", file, f"{store}:cut/1"],
                             stderr=subprocess.PIPE, text=True)
        check(wait_for(lambda: os.listdir(store / "staging")), "it began")
        p.send_signal(number)
        said = p.communicate(timeout=60)[1]
        equal(p.returncode, -number, f"end after {number.name}")
        equal(said, "ckptfs import: interrupted; nothing was saved\n",
              f"what {number.name} says")
        equal(os.listdir(store / "staging"), [], f"{number.name}: staging")
        check(not (store / "checkpoints/cut").exists(), "nothing is visible")


def long_export(store, out, **kw):
    """An export of GiB, begun: its first file is there."""
    p = subprocess.Popen([PROGRAM, "export", f"{store}:run", out / "x"], **kw)
    check(wait_for(lambda: any(f.is_file() for f in out.rglob("*"))),
          "an export began")
    return p


def in_terminal(store, out, total):
    """Progress counts to the bytes of all files; Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    p = long_export(store, out, stderr=theirs)
    os.close(theirs)
    said = b""
    while b" left" not in said:
        said += os.read(ours, 4096)
    p.send_signal(signal.SIGINT)
    while b"incomplete is left" not in said:
        said += os.read(ours, 4096)
    os.close(ours)
    equal(p.wait(60), -signal.SIGINT, "end by Ctrl-C")
    of = set(re.findall(rb"exporting \S+ [KMG]?i?B of (\S+ \S+),", said))
    equal(of, {b"%.2f GiB" % (total / 2**30)}, f"progress: {said}")


def exports(tmp):
    """61 forks of 64 MiB: nothing to store, 4 GiB to export."""
    tensors = {f"h.{i}.w": np.full(1 << 20, i, np.float32) for i in range(16)}
    safetensors.numpy.save_file(tensors, tmp / "f.safetensors")
    store = new_store(tmp, "forks")
    run("import", tmp / "f.safetensors", f"{store}:run/0")
    for i in range(1, 61):
        run("cp", "-q", f"{store}:run/0", f"{store}:run/{i}")
    out = tmp / "out"
    out.mkdir()
    one = tmp / "one"
    run("export", f"{store}:run/0", f"{one}//")
    for name, array in tensors.items():
        equal(np.load(one / "model" / f"{name.replace('.', '/')}.npy").tolist()
              == array.tolist(), True, f"{name} exported to 'one//'")
    size = sum(f.stat().st_size for f in one.rglob("*") if f.is_file())
    in_terminal(store, out, 61 * size)
    equal(os.listdir(out), [], "Ctrl-C: nothing is left")
    for number in (signal.SIGTERM, signal.SIGHUP):
        p = long_export(store, out, stderr=subprocess.PIPE, text=True)
        p.send_signal(number)
        said = p.communicate(timeout=60)[1]
        equal(p.returncode, -number, f"end after {number.name}")
        equal(said, "ckptfs export: interrupted; nothing incomplete is left\n",
              f"what {number.name} says")
        equal(os.listdir(out), [], f"{number.name}: nothing is left")
    # what rename(2) would replace: an empty folder that appears meanwhile
    p = subprocess.Popen([PROGRAM, "export", f"{store}:run/0", out / "x"],
                         stderr=subprocess.PIPE, text=True)
    check(wait_for(lambda: os.listdir(out)), "it began")
    p.send_signal(signal.SIGSTOP)
    (out / "x").mkdir()
    before = (out / "x").stat().st_ino
    p.send_signal(signal.SIGCONT)
    check("File exists" in p.communicate(timeout=60)[1], "it is said")
    equal((p.returncode, os.listdir(out), (out / "x").stat().st_ino),
          (1, ["x"], before), "what appeared is left alone")
    (out / "x").rmdir()
    full_disk(store, out)
    full_and_killed(store, out)
    p = run("export", f"{store}:run/0/checkpoint.json", f"{out}/no/", ok=False)
    check("no folder" in one_sentence(p, "a file to 'no/'"), "says why")
    run("export", f"{store}:run/0/checkpoint.json", f"{out}//")
    equal(os.listdir(out), ["checkpoint.json"], "into a folder with slashes")


def full_disk(store, out):
    """A file system of 20 MiB, in a mount namespace of its own."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = ('mount -t tmpfs -o size=20m none "$3" && cd "$3" && '
              '{ "$1" export "$2" x; echo $?; ls -A; }')
    p = subprocess.run(["unshare", "--mount", *user, "sh", "-c", script, "sh",
                        PROGRAM, f"{store}:run/0", out],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(p.stdout, b"1\n", "a full disk: exit code, and nothing is left")
    text = one_sentence(subprocess.CompletedProcess([], 1, b"", p.stderr),
                        "a full disk")
    check("cannot write 'x/model/" in text and
          text.endswith("No space left on device\n"), text)


def full_and_killed(store, out):
    """A signal does not hide what failed: strace(1) makes both at once."""
    if not shutil.which("strace") or subprocess.run(
            ["strace", "-qq", "-o", "/dev/null", "true"],
            stderr=subprocess.DEVNULL).returncode != 0:
        print("nothing may be traced here: a signal at a failure not tried")
        return
    p = subprocess.run(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e",
         "inject=fsync:error=ENOSPC:signal=SIGTERM:when=1", PROGRAM, "export",
         f"{store}:run/0", out / "x"], stderr=subprocess.PIPE,
        env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
    check("No space left" in one_sentence(p, "a full disk, and SIGTERM"),
          p.stderr)
    equal(os.listdir(out), [], "nothing is left of it")


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # nohup has one ignored
    rng = np.random.default_rng(3)
    pick = random.Random(4)
    tensors = {f"layer.{i}.w": rng.standard_normal((512, 700 + i)).astype(
        np.float32) for i in range(24)}
    killed = finished = 0
    with folder() as tmp:
        file = tmp / "m.safetensors"
        safetensors.numpy.save_file(tensors, file)
        store = new_store(tmp)
        start = time.monotonic()
        run("import", file, f"{store}:old/0")
        whole = time.monotonic() - start
        want = {n: sha(a.tobytes()) for n, a in tensors.items()}
        for i in range(ROUNDS):
            # other bytes each round, so that there is something to write
            tensors["layer.0.w"][0, 0] = i
            for t in tensors.values():
                t += 1
            safetensors.numpy.save_file(tensors, file)
            p = subprocess.Popen([PROGRAM, "import", "-q", file,
                                  f"{store}:run/{i}"],
                                 stderr=subprocess.DEVNULL)
            time.sleep(pick.uniform(0, whole * 1.1))
            p.send_signal(signal.SIGKILL)
            p.wait()
            killed += p.returncode != 0
            finished += p.returncode == 0
            there = f"{i}/" in listed(store)
            check(p.returncode != 0 or there, f"round {i}: exit 0 and absent")
            if there:
                got = run("cat", "--tensor", "layer.7.w", f"{store}:run/{i}")
                equal(got.stdout, tensors["layer.7.w"].tobytes(),
                      f"round {i} is whole")
            if i % 10 == 9:
                p = run("check", "--full", store, ok=False)
                check(b"no damage" in p.stdout, f"round {i}: check --full: "
                                                f"{p.stdout.decode()}")
        run("import", file, f"{store}:after")
        got = run("cat", "--tensor", "layer.7.w", f"{store}:after")
        equal(got.stdout, tensors["layer.7.w"].tobytes(), "the next import")
        for n, digest in want.items():
            got = run("cat", "--tensor", n, f"{store}:old/0")
            equal(sha(got.stdout), digest, f"the old checkpoint: {n}")
        check(b"no damage" in run("check", "--full", store).stdout,
              "check --full is clean")
        empty = new_store(tmp, "empty")
        interrupted(tmp, empty)
        exports(tmp)
    check(killed >= 5, f"most rounds were killed in time ({killed})")
    print(f"{killed} killed, {finished} had finished")
    done()


main()
