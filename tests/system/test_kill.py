# SPDX-License-Identifier: Apache-2.0
"""kill -9 during an import at 50 random moments (S4, commit-01); Ctrl-C and
kill, which take back what was begun."""
import os
import random
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
        equal(p.returncode, 128 + number, f"exit after {number.name}")
        equal(said, "ckptfs import: interrupted; nothing was saved\n",
              f"what {number.name} says")
        equal(os.listdir(store / "staging"), [], f"{number.name}: staging")
        check(not (store / "checkpoints/cut").exists(), "nothing is visible")


def main():
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
    check(killed >= 5, f"most rounds were killed in time ({killed})")
    print(f"{killed} killed, {finished} had finished")
    done()


main()
