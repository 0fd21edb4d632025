#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What saving costs a training loop: runs with saves against runs without.

usage: train_loop.py [--state NAME] [--pairs N] [--steps 20] [--every 10]
                     [--seconds 1.0] [--cores 1|2] [--only SYSTEMS]
                     [--dir SCRATCH] [--json FILE] [--lock FILE] ...

A step computes (products of matrices, as long as --seconds when alone) and then
changes every tensor. Every so many steps a save begins right after the change.
ckptfs goes on computing, waits for CKPT_CAPTURED before the next change and
becomes durable in the background; `staged` is that with staging for all of the
state. The others save with their own asynchronous call and end the previous
save before the next. A run ends when its last save is durable.

The computing is plain C for ckptfs and NumPy for the others, so each system is
compared with itself without saves, in pairs, in turn one first and then the
other, all systems round by round. The interval is a bootstrap's, over pairs.
"""
import random
import statistics

from common import *

OURS = {"ckptfs": "", "ckptfs staged": "touch=1 AHEAD"}
SYSTEMS = (*OURS, "DCP async", "Orbax async", "Orbax async no zstd")
RESAMPLES = 10000


class Loop:
    """One system in a process of its own, for one pair of runs."""

    def __init__(self, a, system, python, prefix, work):
        self.a, self.system, self.folder = a, system, work / "train"
        argv = [a.program, prefix] if system in OURS else [
            python, HERE / "peer.py",
            "jax" if system.startswith("Orbax") else "torch", prefix]
        self.worker = Worker(argv, work, OPENBLAS_NUM_THREADS=str(a.cores))
        fresh(self.folder)
        self.op = system.replace(" ", "_")
        if system not in OURS:
            self.worker.ask("warm", self.op, self.folder)
        self.work = self.worker.ask("calibrate", a.seconds, a.cores)["work"]
        self.worker.ask("train", 1, 0, 1, a.cores) # compiles the update

    def run(self, saving):
        a = self.a
        words = ["train", a.steps, a.every if saving else 0, self.work,
                 a.cores]
        fresh(self.folder)
        if self.system not in OURS:
            words += [self.op, self.folder]
        elif saving:
            open_writer(self.worker, self.folder / "store",
                        OURS[self.system], a.ckptfs)
        out = self.worker.timed(*words)
        if self.system in OURS:
            self.worker.ask("close")
        fresh(self.folder)
        return out

    def pair(self, saving_first):
        out = {s: self.run(s) for s in (saving_first, not saving_first)}
        return {"with": out[True], "without": out[False],
                "foreign": max(o["foreign"] for o in out.values())}


def slowdown(pair):
    return pair["with"]["total"] / pair["without"]["total"] - 1


def interval(values):
    """95 % of the means of resamples."""
    r = random.Random(1)
    means = sorted(statistics.fmean(r.choices(values, k=len(values)))
                   for _ in range(RESAMPLES))
    return means[RESAMPLES * 25 // 1000], means[RESAMPLES * 975 // 1000 - 1]


def print_table(a, pairs):
    print(f"{a.state}: {a.steps} steps of {a.seconds} s on {a.cores} core(s) "
          f"and an update; a save every {a.every}; {a.pairs} pairs\n")
    print(f"{'':20} {'without s':>9} {'slowdown':>9} {'95 % interval':>17} "
          f"{'blocked s/save':>14} {'disturbed':>9}")
    for name, rows in pairs.items():
        values = [slowdown(p) for p in rows]
        low, high = interval(values)
        alone = statistics.median(p["without"]["total"] for p in rows)
        blocked = statistics.median(
            p["with"]["blocked"] / p["with"]["saves"] for p in rows)
        busy = sum(p["foreign"] >= DISTURBED for p in rows)
        print(f"{name:20} {alone:9.2f} {statistics.fmean(values):9.2%} "
              f"{f'{low:.2%} - {high:.2%}':>17} {blocked:14.3f} {busy:9}")


def main():
    p = arguments(__doc__)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--seconds", type=float, default=1.0)
    p.add_argument("--cores", type=int, default=1)
    a = p.parse_args()
    systems = wanted(SYSTEMS, a.only)
    python = venv(a.venv)
    pairs = {s: [] for s in systems}
    with scratch(a.dir) as work:
        prefix, index = state(a, python, work)
        for r in range(a.pairs): # memory holds one system at a time
            for system in systems if r % 2 == 0 else systems[::-1]:
                with locked(a.lock):
                    loop = Loop(a, system, python, prefix, work)
                    pairs[system].append(loop.pair(r % 2 == 0))
                    loop.worker.end()
    print_table(a, pairs)
    save_json(a.json, {
        "state": a.state, "bytes": index["bytes"], "machine": machine(),
        "steps": a.steps, "every": a.every, "seconds": a.seconds,
        "cores": a.cores, "pairs": pairs,
        "slowdown": {s: [slowdown(p) for p in rows]
                     for s, rows in pairs.items()}})


main()
