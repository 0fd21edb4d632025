# SPDX-License-Identifier: Apache-2.0
"""What an import may take of the machine: bytes a second by the clock, threads
and their priorities as the kernel tells them. Times are compared from below
only: a slow machine passes."""
import os
import shutil
import signal
import subprocess
import time

from ckptest import *
from mounts import wait_for

import numpy as np
import safetensors.numpy

MIB = 1 << 20


def noise(path, mib):
    data = np.random.default_rng(mib).integers(0, 256, mib * MIB, np.uint8)
    safetensors.numpy.save_file({"w": data}, path)
    return data.tobytes()


def rate(store, tmp):
    want = noise(tmp / "3.safetensors", 3)
    for i, (text, per_s) in enumerate((("4M", 4 * MIB), ("4096K", 4 * MIB),
                                       ("0.0040G", 0.004 * 2**30),
                                       ("5000000", 5000000))):
        start = time.monotonic()
        run("import", "-q", "--codec", "raw", "--limit-rate", text,
            tmp / "3.safetensors", f"{store}:rate/{i}")
        took = time.monotonic() - start
        # two bursts of a 64th of a second come at once
        least = 3 * MIB / per_s - 2 / 64
        check(took >= least, f"{text}: {took:.2f} s, at least {least:.2f}")
        got = run("cat", "--tensor", "w", f"{store}:rate/{i}").stdout
        check(got == want, f"{text}: the bytes")
        run("rm", f"{store}:rate/{i}")
        # or the next one finds them there, and writes nothing
        shutil.rmtree(store)
        run("init", store)


def workers(pid):
    """Thread ids of the import's workers, those that end meanwhile aside."""
    out = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            name = open(f"/proc/{pid}/task/{tid}/comm").read().strip()
        except OSError:
            continue
        if name == "ckpt-worker":
            out.append(int(tid))
    return out


def ionice(tid):
    return subprocess.run(["ionice", "-p", str(tid)], stdout=subprocess.PIPE,
                          ).stdout.decode().strip()


def threads(store, tmp):
    """Asked while they wait for the limit; then Ctrl-C, which does not."""
    noise(tmp / "24.safetensors", 24)
    for n, more, nice, given, told in (
            (3, 0, 19, "idle", "idle"),
            (1, 0, 7, "best-effort:6", "best-effort: prio 6"),
            (2, 12, 7, "best-effort", "best-effort: prio 4")):
        # never less than the program's own, not even for root
        own = min(19, os.getpriority(os.PRIO_PROCESS, 0) + more)
        p = subprocess.Popen(
            ["nice", "-n", str(more), PROGRAM, "import", "--limit-rate", "1K",
             "--threads", str(n), "--nice", str(nice), "--ionice", given,
             tmp / "24.safetensors", f"{store}:slow/1"],
            stderr=subprocess.PIPE, text=True)
        # each sets its own as its first thing
        check(wait_for(lambda: len(workers(p.pid)) == n + 12 and all(
            os.getpriority(os.PRIO_PROCESS, t) == max(nice, own)
            for t in workers(p.pid))), f"{n} threads of nice {nice}, and 12")
        if shutil.which("ionice"):
            check(wait_for(lambda: all(ionice(t) == told
                                       for t in workers(p.pid))),
                  f"--ionice {given}: {[ionice(t) for t in workers(p.pid)]}")
        equal(os.getpriority(os.PRIO_PROCESS, p.pid), own,
              "the program's own thread keeps what it had")
        p.send_signal(signal.SIGINT)
        said = p.communicate(timeout=60)[1]
        equal((p.returncode, said), (-signal.SIGINT,
              "ckptfs import: interrupted; nothing was saved\n"), "Ctrl-C")
    equal(os.listdir(store / "staging"), [], "nothing is left")


def mistakes(store, tmp):
    bad = {"--limit-rate": ["0", "-1", "1.", "M", "10MB", "1e6", "inf", "",
                            "99999999T", "0.1", "1 M"],
           "--threads": ["0", "257", "-1", "2.5", "many", ""],
           "--nice": ["20", "-1", "x", "1.0", ""],
           "--ionice": ["none", "best-effort:8", "best-effort:", "idle:1",
                        "best-effort:-1", "best-effort7", "3", ""]}
    wants = {"--limit-rate": "bytes a second such as 200M",
             "--threads": "a number from 1 to 256",
             "--nice": "a number from 0 to 19",
             "--ionice": "idle, best-effort or best-effort:N"}
    for option, values in bad.items():
        for value in values:
            p = run("import", f"{option}={value}", tmp / "3.safetensors",
                    f"{store}:bad", ok=False)
            text = one_sentence(p, f"{option}={value}")
            equal((p.returncode, p.stdout), (2, b""), f"{option}={value}")
            check(option in text and wants[option] in text and
                  f"not '{value}'" in text, f"{option}={value}: {text}")
    equal(os.listdir(store / "checkpoints"), [], "mistakes save nothing")


def main():
    with folder() as tmp:
        store = new_store(tmp)
        rate(store, tmp)
        threads(store, tmp)
        mistakes(store, tmp)
    done()


main()
