#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves of one state: ckptfs, other libraries and the machine, interleaved.

usage: peers.py [--state NAME] [--rounds N] [--only SYSTEMS] [--dir SCRATCH]
                [--json FILE] [--venv DIR] [--lock FILE] [--ckptfs OPTIONS]

Each system saves the same state from a long-lived process into an empty folder
or store, once a round, one at a time. `durable` ends when all is synced (what
a library leaves unsynced is synced and counted); `blocking` when the caller may
change its tensors. Then the bars that ckptfs is held to, and whether they are
met. Ratios are medians of the ratios within a round.

Needs up to seven times the state's size of memory and three of disk.
"""
import statistics
import sys

from common import *

OURS = {  # name -> options of the writer; AHEAD: staging for all of the state
    "ckptfs": "codec=auto", "ckptfs raw": "codec=raw",
    "ckptfs planes": "codec=planes",
    "ckptfs staged": "codec=auto touch=1 AHEAD",
    "ckptfs overlap": "codec=auto touch=1 AHEAD",
    "ckptfs again": "codec=auto",
}
TORCH = ("torch.save", "safetensors", "DCP 1 thread", "DCP 2 threads",
         "DCP async")
JAX = ("Orbax", "Orbax no zstd", "Orbax async", "Orbax async no zstd")
LIMITS = "limits"
AGAIN = ("none", "tenth", "all") # that changed before the next save
SYSTEMS = (*OURS, *TORCH, *JAX, LIMITS)
# state -> how many times as long as ckptfs others must take at least, ...
TIMES_SLOWER = {
    "gpt2-125m": {"torch.save": 2.0, "DCP 1 thread": 2.0,
                  "DCP 2 threads": 1.4, "Orbax": 2.5, "Orbax no zstd": 1.6},
    "few-large": {"torch.save": 2.0, "DCP 1 thread": 1.8,
                  "DCP 2 threads": 1.3, "Orbax": 2.5},
    "many-small": {"torch.save": 1.4, "DCP 1 thread": 7.0, "Orbax": 25.0},
    "real": {"torch.save": 1.3, "DCP 1 thread": 1.4, "Orbax": 2.5},
}
# ... and what ckptfs may take at most of the time of safetensors
OF_SAFETENSORS = {"gpt2-125m": 1.05, "few-large": 1.05, "many-small": 1.3,
                  "real": 1.5}
LARGE = ("gpt2-125m", "few-large") # bars on rates make sense
STEP_SECONDS = 1.0 # computing between start and wait of `ckptfs overlap`


class Bench:
    def __init__(self, a, work, python):
        self.a, self.work = a, work
        self.prefix, self.index = state(a, python, work)
        self.python, self.workers, self.skipped = python, {}, {}
        self.rows, self.warmed, self.step = {}, set(), None

    def worker(self, system):
        kind = ("torch" if system in TORCH else
                "jax" if system in JAX else "ours")
        if kind not in self.workers:
            argv = ([self.a.program, self.prefix] if kind == "ours" else
                    [self.python, HERE / "peer.py", kind, self.prefix])
            self.workers[kind] = Worker(argv, self.work)
        return self.workers[kind]

    def ours(self, w, system, folder):
        store = folder / "store"
        open_writer(w, store, OURS[system], self.a.ckptfs)
        if system == "ckptfs overlap":
            if not self.step:
                self.step = w.ask("calibrate", STEP_SECONDS, 1)["work"]
            out = w.timed("save", "a/1", "overlap", self.step)
        else:
            out = w.timed("save", "a/1", "captured+durable")
        out["stored"] = size_of(store)
        if system == "ckptfs again":
            before = size_of(store / "packs")
            out["none"] = w.ask("save", "a/2", "durable")
            out["none"]["packs"] = size_of(store / "packs") - before
            w.ask("update", 0.1)
            out["tenth"] = w.ask("save", "a/3", "durable")
            w.ask("update", 1)
            out["all"] = w.timed("save", "a/4", "captured+durable")
        return out

    def measure(self, system):
        w, folder = self.worker(system), self.work / "save"
        fresh(folder)
        if system == LIMITS:
            return w.timed("limits", folder)
        if system in OURS:
            return self.ours(w, system, folder)
        op = system.replace(" ", "_")
        if system not in self.warmed:
            w.ask("warm", op, folder)
            self.warmed.add(system)
            fresh(folder)
        out = w.timed("save", op, folder)
        out["stored"] = size_of(folder)
        return out

    def round(self, systems):
        for system in systems:
            if system in self.skipped:
                continue
            try:
                with locked(self.a.lock):
                    out = undisturbed(lambda: self.measure(system))
                self.rows.setdefault(system, []).append(out)
            except Refused as e:
                self.skipped[system] = str(e)
            if system in OURS: # gives its staging back
                self.worker(system).ask("close")
            shutil.rmtree(self.work / "save", ignore_errors=True)

    def end(self):
        for w in self.workers.values():
            w.end()


class Figures:
    """Medians of rows and of ratios within rounds."""

    def __init__(self, rows, index):
        self.rows, self.index = rows, index

    def all(self, system, value):
        f = value if callable(value) else lambda row: row[value]
        return [f(row) for row in self.rows.get(system, [])]

    def ratio(self, x, x_value, y, y_value):
        """Median of x / y, or None."""
        pairs = list(zip(self.all(x, x_value), self.all(y, y_value)))
        return statistics.median(i / j for i, j in pairs) if pairs else None

    def floors(self, row):
        """Seconds that each limit allows, on all cores."""
        direct = min([v for k, v in row.items()
                      if k.startswith("direct") and v > 0] +
                     [row["buffered"]])
        return {"write": direct, "sha256": row["sha256"] / row["cores"],
                "memcpy": row["memcpy"], "xxh3": row["xxh3 all cores"]}


def bars(name, f):
    """(bar, relation, wanted, measured or None) of each that has a bar."""
    out = []
    for peer, least in TIMES_SLOWER.get(name, {}).items():
        out.append((f"{peer} / ckptfs", ">=", least,
                    f.ratio(peer, "durable", "ckptfs", "durable")))
    if name in OF_SAFETENSORS:
        out.append(("ckptfs / safetensors", "<=", OF_SAFETENSORS[name],
                    f.ratio("ckptfs", "durable", "safetensors", "durable")))
    thousands = max(len(f.index["tensors"]) / 1000, 1)
    starts = f.all("ckptfs", lambda r: r["start"] - r["describe"])
    out.append(("start, ms for 1,000 tensors", "<=", 5,
                statistics.median(starts) * 1e3 / thousands
                if starts else None))
    out.append(("overlapped blocking / DCP async's", "<=", 0.2,
                f.ratio("ckptfs overlap", "blocking", "DCP async",
                        "blocking")))
    packs = f.all("ckptfs again", lambda r: r["none"]["packs"])
    out.append(("new bytes in packs, unchanged", "<=", 0,
                max(packs) if packs else None))
    tenth = f.all("ckptfs again", lambda r: r["tenth"]["durable"] / (
        r["none"]["durable"] + 0.15 * r["durable"]))
    out.append(("10 % changed / (unchanged + 0.15 full)", "<=", 1,
                statistics.median(tenth) if tenth else None))
    if name in LARGE:
        out += rate_bars(f)
    return out


def rate_bars(f):
    return [
        ("ckptfs' rate / lowest limit", ">=", 0.85,
         f.ratio(LIMITS, lambda r: max(f.floors(r).values()),
                 "ckptfs", "durable")),
        ("start + captured, staged / memcpy", "<=", 1.15,
         f.ratio("ckptfs staged", lambda r: r["captured"] - r["describe"],
                 LIMITS, "memcpy")),
        ("unchanged rate / XXH3 on all cores", ">=", 0.7,
         f.ratio(LIMITS, "xxh3 all cores", "ckptfs again",
                 lambda r: r["none"]["durable"])),
    ]


def spread(values):
    return (f"{statistics.median(values):7.3f} {min(values):7.3f}"
            f"-{max(values):.3f}")


def print_table(f, bench):
    size = f.index["bytes"]
    print(f"{bench.a.state}: {size / 1e9:.3f} GB, "
          f"{len(f.index['tensors'])} tensors, {bench.a.rounds} rounds\n")
    print(f"{'seconds':22} {'durable':>7} {'min-max':>12}  {'/ckptfs':>7} "
          f"{'blocking':>8} {'min-max':>12} {'stored':>7}")
    for name in [n for n in f.rows if n != LIMITS]:
        ratio = f.ratio(name, "durable", "ckptfs", "durable")
        stored = statistics.median(f.all(name, "stored")) / size
        busy = max(f.all(name, "foreign"))
        print(f"{name:22} {spread(f.all(name, 'durable')):21} "
              f"{ratio or float('nan'):6.2f}  "
              f"{spread(f.all(name, 'blocking')):22} {stored:6.3f}"
              f"{' (disturbed)' if busy >= DISTURBED else ''}")
    for part in AGAIN if "ckptfs again" in f.rows else ():
        times = f.all("ckptfs again", lambda r: r[part]["durable"])
        print(f"  then {part + ' changed':15} {spread(times)}")
    if LIMITS in f.rows:
        print()
        for key in f.rows[LIMITS][0]:
            if key not in ("cores", "bytes", "foreign"):
                values = f.all(LIMITS, key)
                print(f"limit: {key:16} {spread(values):24} "
                      f"{size / statistics.median(values) / 1e9:6.2f} GB/s")
    for name, why in bench.skipped.items():
        print(f"skipped: {name}: {why}")


def print_bars(found):
    print(f"\n{'bar':40} {'wanted':>9} {'measured':>9}")
    for bar, relation, least, value in found:
        met = value is not None and (value >= least if relation == ">="
                                     else value <= least)
        said = "not measured" if value is None else "pass" if met else "FAIL"
        figure = "" if value is None else f"{value:9.2f}"
        print(f"{bar:40} {relation} {least:6} {figure:>9}  {said}")


def main():
    p = arguments(__doc__)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    systems = wanted(SYSTEMS, a.only)
    python = venv(a.venv)
    with scratch(a.dir) as work:
        bench = Bench(a, work, python)
        for r in range(a.rounds):
            bench.round(systems if r % 2 == 0 else systems[::-1])
        bench.end()
    f = Figures(bench.rows, bench.index)
    found = bars(a.state, f)
    print_table(f, bench)
    print_bars(found)
    save_json(a.json, {
        "state": a.state, "bytes": bench.index["bytes"],
        "machine": machine(), "rows": bench.rows, "skipped": bench.skipped,
        "bars": [dict(zip(("bar", "relation", "wanted", "measured"), b))
                 for b in found]})


main()
