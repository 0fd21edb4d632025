# SPDX-License-Identifier: Apache-2.0
"""What `stat` says: how often to save, against the formulas written anew in
decimals, the model's own optimum, and failures that are drawn at random."""
import decimal
import json

from ckptest import *

import numpy as np

D = decimal.Decimal


def stat(store, *args):
    p = run("stat", "--json", store, *args)
    return json.loads(p.stdout)


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
    done()


main()
