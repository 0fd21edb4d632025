#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The mount against a FUSE server that does nothing, interleaved.

usage: mount.py [--tensors 100000] [--checkpoints 5000] [--mib 4096]
                [--rounds 5] [--dir DIR] [--json FILE] [--program FILE]

Run as root (caches are dropped, read-ahead is set the same on both). Measures
  tree   one checkpoint of many small tensors: import, first `ls`, `ls -lR`
         of ours and of the same tree served from memory, daemon's memory
  mount  a store of many checkpoints: how long until `mount` returns, the first
         `ls` of the run, `log`
  read   one large tensor, cold: ours against a pread of one plain file
contrib/bench/nothing.c is compiled beside the data. Prints medians, spread and
ratios, and writes JSON.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
READAHEAD_KIB = 4096
BLOCK = 64 << 20


def timed(*argv, out=subprocess.DEVNULL):
    start = time.monotonic()
    subprocess.run([os.fspath(a) for a in argv], check=True, stdout=out)
    return time.monotonic() - start


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def write_safetensors(path, tensors, chunks):
    """@tensors: (name, shape) of U8; @chunks yields the bytes."""
    header, at = {}, 0
    for name, shape in tensors:
        size = 1
        for n in shape:
            size *= n
        header[name] = {"dtype": "U8", "shape": shape,
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for chunk in chunks:
            f.write(chunk)


class Mount:
    """Ours, or the one that does nothing."""

    def __init__(self, argv, point, wait):
        point.mkdir(exist_ok=True)
        self.point = point
        start = time.monotonic()
        self.process = subprocess.Popen([os.fspath(a) for a in argv])
        if wait:
            self.process.wait()
        while not os.path.ismount(point):
            time.sleep(0.001)
        self.seconds = time.monotonic() - start
        device = os.stat(point).st_dev
        knob = pathlib.Path(f"/sys/class/bdi/{os.major(device)}:"
                            f"{os.minor(device)}/read_ahead_kb")
        knob.write_text(f"{READAHEAD_KIB}\n")

    def end(self):
        subprocess.run(["umount", self.point], check=True)
        self.process.wait()


def ours(a, store, point):
    return Mount([a.program, "mount", store, point], point, True)


def status(point):
    rows = (point / ".ckptfs").read_text().split("\n")
    return {k: int(v) for k, v in (r.split() for r in rows if r)}


def listing(point, path):
    with open(path, "wb") as f:
        subprocess.run(["find", point, "-mindepth", "1", "-printf",
                        "%y %s %P\n"], check=True, stdout=f)


def nothing(a, work):
    program = work / "nothing"
    flags = subprocess.check_output(
        ["pkg-config", "--cflags", "--libs", "fuse3"]).decode().split()
    subprocess.run(["cc", "-O2", "-o", program,
                    ROOT / "contrib/bench/nothing.c", *flags], check=True)
    return program


def tree(a, work, program, out):
    n = a.tensors
    source, store = work / "many.safetensors", work / "many"
    names = [(f"layers.{i // 1000}.experts.{i // 10 % 100}.w{i % 10}",
              [16]) for i in range(n)]
    write_safetensors(source, names,
                      (i.to_bytes(16, "little") for i in range(n)))
    subprocess.run([a.program, "init", "-q", store], check=True)
    out["import s"] = [timed(a.program, "import", "-q", source,
                             f"{store}:run/1")]
    first, lists, floor, memory = [], [], [], []
    m = ours(a, store, work / "m")
    listing(work / "m", work / "list")
    m.end()
    for _ in range(a.rounds):
        m = ours(a, store, work / "m")
        first.append(timed("ls", work / "m/run/1/model"))
        lists.append(timed("ls", "-lR", work / "m"))
        memory.append(status(work / "m")["memory.resident_bytes"] / 2**20)
        m.end()
        m = Mount([program, work / "list", source, work / "n"], work / "n",
                  False)
        floor.append(timed("ls", "-lR", work / "n"))
        m.end()
    out.update({"first ls s": first, "ls -lR s": lists,
                "ls -lR, nothing s": floor, "daemon MiB": memory})
    return "ls -lR / nothing", statistics.median(
        x / y for x, y in zip(lists, floor))


def many_checkpoints(a, work, out):
    source, store = work / "one.safetensors", work / "runs"
    subprocess.run([a.program, "init", "-q", store], check=True)
    for i in range(a.checkpoints):
        write_safetensors(source, [("w", [16])], [i.to_bytes(16, "little")])
        subprocess.run([a.program, "import", "-q", source,
                        f"{store}:run/{i}"], check=True)
    out["mount s"] = []
    out["ls of the run s"] = []
    out["log, warm s"] = []
    for _ in range(a.rounds):
        drop_caches()
        m = ours(a, store, work / "m")
        out["mount s"].append(m.seconds)
        out["ls of the run s"].append(timed("ls", work / "m/run"))
        m.end()
        timed(a.program, "log", store)
        out["log, warm s"].append(timed(a.program, "log", store))


def read(a, work, program, out):
    source, store = work / "big.safetensors", work / "big"
    size = a.mib << 20
    write_safetensors(source, [("big", [a.mib, 1 << 20])],
                      (os.urandom(BLOCK) for _ in range(size // BLOCK)))
    subprocess.run([a.program, "init", "-q", store], check=True)
    subprocess.run([a.program, "import", "-q", source, f"{store}:big"],
                   check=True)
    (work / "list").write_text(f"f {size} big\n")
    rates = {"cold read, ours MB/s": [], "cold read, nothing MB/s": []}
    jobs = {
        "cold read, ours MB/s": lambda: (
            ours(a, store, work / "m"), work / "m/big/model/big.npy"),
        "cold read, nothing MB/s": lambda: (
            Mount([program, work / "list", source, work / "n"], work / "n",
                  False), work / "n/big"),
    }
    for r in range(a.rounds):
        for name in list(jobs) if r % 2 == 0 else list(jobs)[::-1]:
            m, path = jobs[name]()
            drop_caches()
            took = timed("dd", f"if={path}", "of=/dev/null", "bs=1M",
                         "status=none")
            rates[name].append(size / took / 1e6)
            m.end()
    out.update(rates)
    x, y = rates.values()
    return "cold read / nothing", statistics.median(
        i / j for i, j in zip(x, y))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tensors", type=int, default=100000)
    p.add_argument("--checkpoints", type=int, default=5000)
    p.add_argument("--mib", type=int, default=4096)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--only", choices=["tree", "mount", "read"])
    p.add_argument("--dir", default=None)
    p.add_argument("--json", default=None)
    p.add_argument("--program", default=str(ROOT / "build/fs/cli/ckptfs"))
    a = p.parse_args()
    if os.geteuid() != 0:
        sys.exit("mount.py: run it as root: caches must be dropped")
    out, ratios = {}, {}
    with tempfile.TemporaryDirectory(dir=a.dir) as tmp:
        work = pathlib.Path(tmp)
        program = nothing(a, work)
        if a.only in (None, "tree"):
            ratios.update([tree(a, work, program, out)])
        if a.only in (None, "mount"):
            many_checkpoints(a, work, out)
        if a.only in (None, "read"):
            ratios.update([read(a, work, program, out)])
    print(f"{'':26} {'median':>9} {'min':>9} {'max':>9}")
    for name, values in out.items():
        print(f"{name:26} {statistics.median(values):9.3f} "
              f"{min(values):9.3f} {max(values):9.3f}")
    for name, ratio in ratios.items():
        print(f"{name:26} {ratio:9.2f}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"values": out, "ratios": ratios}, f)


main()
