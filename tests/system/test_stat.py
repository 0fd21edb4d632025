# SPDX-License-Identifier: Apache-2.0
"""What `stat` says: what dtypes and codecs take, against sums by the safetensors
library and the records that contrib/python/reader.py finds in packs; how often
to save, against the formulas written anew in decimals, the model's own optimum,
and failures that are drawn at random."""
import collections
import decimal
import json
import sys

from ckptest import *

import numpy as np
import safetensors.numpy

sys.path.insert(0, str(ROOT / "contrib/python"))
import reader

D = decimal.Decimal
CODECS = ["raw", "zstd", "planes"]


def stat(store, *args):
    p = run("stat", "--json", store, *args)
    return json.loads(p.stdout)


# ---- what is there ----

def state(path):
    """Weights, zeros, counters and noise; one tensor has the bytes of
    another."""
    rng = np.random.default_rng(5)
    weights = rng.normal(0, 0.02, (600, 512)).astype(np.float32)
    safetensors.numpy.save_file({
        "w": weights, "w2": weights, "m": np.zeros((1000, 1000), np.float32),
        "h": rng.normal(0, 0.02, (600, 512)).astype(np.float16),
        "step": np.arange(70000, dtype=np.int64),
        "noise": rng.integers(0, 256, 300000, np.uint8),
        "none": np.zeros((0, 3), np.float64)}, path)


def by_library(path):
    """{dtype: (tensors, bytes)} as the safetensors library reads the file."""
    out = collections.Counter(), collections.Counter()
    for _, t in safetensors.deserialize(path.read_bytes()):
        out[0][t["dtype"]] += 1
        out[1][t["dtype"]] += len(t["data"])
    return {d: (out[0][d], out[1][d]) for d in out[0]}


def stored_as(record):
    if all(coding == 3 for _, coding, _ in record.cells):
        return "constant"
    return CODECS[record.codec]


def by_reader(store):
    """({dtype: (unique, stored)}, {codec: (chunks, unique, stored)}) of the
    records that manifests name, each once, by their headers in the packs."""
    packs, seen = reader.Packs(store), set()
    dtypes = collections.defaultdict(lambda: [0, 0])
    codecs = collections.defaultdict(lambda: [0, 0, 0])
    for name in reader.checkpoints(store):
        c = reader.Checkpoint(store, name)
        for t in c.tensors:
            kind = c.items[t.item][1]
            for e in t.entries:
                pack, r = c.record(e, packs)
                if (pack.uuid, r.off) in seen:
                    continue
                seen.add((pack.uuid, r.off))
                sums = dtypes["headers" if kind == "origin" else
                              "files" if t.is_file else t.dtype]
                sums[0] += r.raw_len
                sums[1] += r.stored_len
                sums = codecs[stored_as(r)]
                sums[0] += 1
                sums[1] += r.raw_len
                sums[2] += r.stored_len
    return dtypes, codecs


def same_ratio(got, want, what):
    unique, stored = want
    if unique and not stored:
        equal(got["codec_ratio"], None, f"{what}: nothing is stored")
    else:
        equal(got["codec_ratio"], unique / stored if stored else 1,
              f"{what}: its ratio")


def against(store, sources, what):
    """@store, into which @sources were imported, a file each."""
    got = stat(store)
    dtypes, codecs = by_reader(store)
    raw = collections.defaultdict(lambda: (0, 0))
    for path in sources:
        for d, (n, size) in by_library(path).items():
            raw[d] = raw[d][0] + n, raw[d][1] + size
    rows = {d["dtype"]: d for d in got["dtypes"]}
    equal({d: (r["tensors"], r["bytes"]) for d, r in rows.items()
           if d != "headers"}, dict(raw), f"{what}: raw bytes by dtype")
    for d, r in rows.items():
        want = tuple(dtypes[d])
        equal((r["unique_bytes"], r["stored_bytes"]), want, f"{what}: {d}")
        same_ratio(r, want, f"{what}: {d}")
    for c in got["codecs"]:
        want = tuple(codecs.pop(c["codec"], ()))
        equal((c["chunks"], c["unique_bytes"], c["stored_bytes"]), want,
              f"{what}: {c['codec']}")
        same_ratio(c, want[1:], f"{what}: {c['codec']}")
    equal(dict(codecs), {}, f"{what}: codecs that stat does not show")
    for key in ("unique_bytes", "stored_bytes"):
        equal((sum(r[key] for r in rows.values()),
               sum(c[key] for c in got["codecs"])), (got["total"][key],) * 2,
              f"{what}: sums of {key}")
    return got


def ratios(tmp):
    file = tmp / "state.safetensors"
    state(file)
    for codec in CODECS:
        store = new_store(tmp, codec)
        run("import", "--codec", codec, file, f"{store}:a/1")
        run("import", "--codec", codec, file, f"{store}:a/2")
        got = against(store, [file, file], codec)
        rows = {d["dtype"]: d for d in got["dtypes"]}
        found = {c["codec"] for c in got["codecs"]}
        # by hand: both checkpoints, the copy within each, all zeros once
        once = 600 * 512 * 4
        zeros = rows["F32"]["unique_bytes"] - once
        check(0 < zeros <= 4 * 10**6 // 8, f"{codec}: zeros are stored once")
        equal(rows["F32"]["bytes"], 2 * (2 * once + 4 * 10**6),
              f"{codec}: F32 by hand")
        equal((rows["F64"]["tensors"], rows["F64"]["codec_ratio"]), (2, 1),
              f"{codec}: a tensor without bytes")
        if codec == "raw":
            equal(found, {"raw"}, "raw is raw")
            continue
        check(codec in found, f"{codec}: {found}")
        equal("constant" in found, codec == "planes", f"{codec}: constants")
        text = run("stat", store).stdout.decode()
        for d in ("F16", "all"):
            r = rows.get(d, got["total"])
            line = next(s for s in text.splitlines() if s.startswith(d))
            equal(line.split()[-1], f"{r['codec_ratio']:.2f}",
                  f"{codec}: {d} in the table")
            check(r["codec_ratio"] > 1.05, f"{codec}: {d} shrinks: {line}")


def fixtures(tmp):
    """Every good file of the fixtures, all dtypes among them."""
    if not FIXTURES.exists():
        print(f"without fixtures: none at {FIXTURES}")
        return
    for codec in CODECS:
        store = new_store(tmp, f"{codec}-fixtures")
        sources = [path for _, path, _ in good_files()]
        for i, path in enumerate(sources):
            run("import", "--codec", codec, path, f"{store}:f/{i}")
        check(len(sources) > 5, "fixtures are there")
        against(store, sources, f"fixtures as {codec}")


# ---- how often to save ----

def young(m, c):
    return (2 * c * m).sqrt()


def daly(m, c):
    """Equation 37 of the paper, term by term."""
    if c >= 2 * m:
        return m
    half = c / (2 * m)
    return (2 * c * m).sqrt() * (
        1 + half ** D("0.5") / 3 + half / 9) - c


def best(m, c, r):
    """Where the time that a second of training takes is least, by thirds."""
    def cost(t):
        return (r / m).exp() * m * (((t + c) / m).exp() - 1) / t
    low, high = D("1e-6"), 4 * m + 4 * c
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if cost(a) < cost(b):
            high = b
        else:
            low = a
    return low


def drawn(m, c, r, t, count=200_000, seed=1):
    """(saving, rework) of a training that really fails: stretches of t and a
    save, begun again after each failure; restarts, which fail too."""
    rng = np.random.default_rng(seed)
    total = 0.0

    def tries(n, length, after):
        nonlocal total
        while n > 0:
            until = rng.exponential(m, n)
            failed = until < length
            total += np.where(failed, until, length).sum()
            n = int(failed.sum())
            if after:
                tries(n, after, 0)

    tries(count, t + c, r)
    saving = count * c / total
    return saving, 1 - count * t / total - saving


def advice(store):
    cases = [  # --mtbf, seconds, nodes, --save-seconds, seconds, restart
        ("1d", 86400, 1, "300", 300, None),
        ("64d", 86400, 64, "5m", 300, "0"),
        ("90d", 7776000 / 2048, 2048, "1.5", D("1.5"), "2m"),
        ("3600", 3600, 1, "60s", 60, "120"),
        ("0.5h", 1800, 1, "10m", 600, "5"),
        ("1w", 100.8, 6000, "20", 20, "30"),
        ("10", 10, 1, "20", 20, "1"),
        ("10", 10, 1, "1h", 3600, "1"),
        ("9999w", 9999 * 604800, 1, "0.001", D("0.001"), "1d"),
    ]
    for mtbf, m, nodes, save, c, restart in cases:
        what = f"{mtbf} {nodes} {save}"
        args = ["--mtbf", mtbf, "--nodes", str(nodes), "--save-seconds", save]
        if restart:
            args += ["--restart-seconds", restart]
        got = stat(store, *args)["advice"]
        m, c = D(str(m)), D(c)
        r = D({"2m": 120, "1d": 86400}.get(restart, restart or 0))
        near = lambda key, want, off=1e-9: check(
            abs(got[key] - float(want)) <= off * float(want),
            f"{what}: {key} is {got[key]}, want {want:.17g}")
        near("mtbf_seconds", m)
        near("save_seconds", c)
        equal((got["nodes"], got["restart_seconds"]), (nodes, r), what)
        near("young_seconds", young(m, c))
        near("daly_seconds", daly(m, c))
        equal(got["lost_share"], got["saving_share"] + got["rework_share"],
              f"{what}: the sum")
        if c < m / 2:  # the paper's estimate is close there
            near("daly_seconds", best(m, c, r), 0.01)
        if c < m:
            saving, rework = drawn(float(m), float(c), float(r),
                                   got["daly_seconds"])
            near("saving_share", saving, 0.02)
            check(abs(got["rework_share"] - rework) <=
                  0.02 * rework + 2e-5, f"{what}: rework is "
                  f"{got['rework_share']}, drawn {rework}")


def says(store):
    """By hand: sqrt(2 x 300 s x 86,400 s) = 2 h; the shares as drawn."""
    lines = run("stat", "--mtbf", "64d", "--nodes", "64", "--save-seconds",
                "300", store).stdout.decode().splitlines()
    at = next(i for i, s in enumerate(lines) if s.startswith("interval"))
    check(lines[at].endswith(", 2 h by Young"), lines[at])
    equal(lines[at + 1].strip(), "for a failure every 24 h (64 nodes of 64 d), "
          "5 min a save, 0 s a restart", "what for")
    check("lost " in lines[at + 2] and "% saving" in lines[at + 2],
          lines[at + 2])
    plain = run("stat", store).stdout.decode()
    check("interval" not in plain and "advice" not in stat(store),
          "no advice unasked")
    for argv, word in (
            (["--mtbf", "1d"], "--mtbf wants --save-seconds"),
            (["--save-seconds", "1"], "wants --mtbf"),
            (["--nodes", "2"], "--nodes is for advice"),
            (["--restart-seconds", "2"], "--restart-seconds is for advice"),
            (["--mtbf", "0", "--save-seconds", "1"], "above 0"),
            (["--mtbf", "1d", "--save-seconds", "0.0"], "not '0.0'"),
            (["--mtbf", "1d", "--nodes", "0"], "--nodes wants a whole"),
            (["--mtbf", "1d", "--nodes", "1.5"], "not '1.5'"),
            (["--mtbf", "1d", "--nodes", "1" * 30], "--nodes wants a whole"),
            *((["--mtbf", bad], f"not '{bad}'") for bad in (
                "", "d", "-1d", "+1", " 1", "1 d", "1y", "1dd", "1.", ".5",
                "1.2.3", "inf", "nan", "0x10", "1e3", "1,5", "1" * 40)),
            (["--mtbf", "1d", "--save-seconds", "1", store], "2 given")):
        p = run("stat", *argv, store, ok=False)
        text = one_sentence(p, f"stat {argv}")
        equal((p.returncode, p.stdout), (2, b""), f"stat {argv}")
        check(word in text, f"stat {argv} says {word!r}: {text}")


def main():
    with folder() as tmp:
        store = new_store(tmp)
        advice(store)
        says(store)
        ratios(tmp)
        fixtures(tmp)
    done()


main()
