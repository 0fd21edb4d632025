# SPDX-License-Identifier: Apache-2.0
"""The everyday commands: show, log, rm, mv, cp, tag, stat; patterns, --json.

JSON is read by Python's own parser and held against ckptfs-json(5), whose list
of keys is read from the page; sums are done by hand from what was imported.
"""
import fcntl
import json
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
import unicodedata

from ckptest import *

import numpy as np
import safetensors.numpy

sys.path.insert(0, str(ROOT / "contrib/python"))
from xxh3 import xxh3

HOSTILE = ['q"uote\\back', "täb", "a b", "[x]*?", "-rf", "'", "$(id)", "日本",
           "%41", "{}", "x" * 255]


def model(path, n):
    """shared: 4,000 bytes in all; own: 800 bytes that only this one has."""
    safetensors.numpy.save_file(
        {"shared": np.arange(1000, dtype=np.float32),
         "h.0.own": np.full(100, n, dtype=np.int64)}, path)


def fill(tmp):
    store = new_store(tmp)
    for n in range(1, 5):
        model(tmp / "m.safetensors", n)
        run("import", "--codec", "raw", "--step", str(n * 100),
            tmp / "m.safetensors",
            f"{store}:run/{n}")
    return store


def loads(p, what):
    try:
        return json.loads(p.stdout)
    except ValueError as e:
        check(False, f"{what}: no JSON: {e}: {p.stdout!r:.300}")
        return {}


def log(store, *args):
    return [c["name"] for c in
            loads(run("log", "--json", *args, store), args)["checkpoints"]]


# ---- keys and types, from the man page ----

def page():
    """{command: {path: "texts or null"}} of ckptfs-json(5)."""
    out, command, key = {}, None, None
    for line in (ROOT / "contrib/man/ckptfs-json.5").read_text().splitlines():
        if line.startswith(".Ss "):
            command = out.setdefault(line[4:], {})
        elif line.startswith(".It Li "):
            key = line[7:].strip('"')
        elif line.startswith(".It "):
            key = None
        elif key and not line.startswith("."):
            first, *rest = key.split(", ")
            stem = first[:max(first.rfind("."), -1) + 1]
            for path in [first, *(stem + r for r in rest)]:
                command.setdefault(path, []).append(line)
            key = None
    return out


TYPES = {"number": (int, float), "text": str, "list": list, "object": dict,
         "null": type(None), "true": bool, "false": bool}


def fits(value, says):
    words = set(re.findall(r"number|text|list|object|null|true|false", says))
    for name in words:
        if isinstance(value, TYPES[name]) and not (
                name == "number" and isinstance(value, bool)):
            return True
    return False


def against_page(command, value, where="", keys=None):
    """Every key is on the page, with its type; free objects are not entered."""
    keys = keys or page()[command]
    for k, v in value.items():
        path = where + k
        if not check(path in keys, f"{command}: key {path} is not in "
                                   "ckptfs-json(5)"):
            continue
        check(any(fits(v, s) for s in keys[path]),
              f"{command}: {path} is {v!r:.60}, the page says {keys[path]}")
        below = [p for p in keys if p.startswith((f"{path}.", f"{path}[]."))]
        if isinstance(v, dict) and below:
            against_page(command, v, f"{path}.", keys)
        for e in v if isinstance(v, list) else []:
            if isinstance(e, dict):
                against_page(command, e, f"{path}[].", keys)


def all_json(store, tmp):
    model(tmp / "m.safetensors", 9)
    calls = [
        ["init", tmp / "other"],
        ["import", tmp / "m.safetensors", f"{store}:json/1"],
        ["tag", f"{store}:json/1", "keep"], ["tag", "-l", store],
        ["ls", "-R", store], ["ls", f"{store}:json/1/model"],
        ["log", store], ["stat", store], ["show", f"{store}:json/1"],
        ["stat", "--mtbf", "1d", "--save-seconds", "5", store],
        ["show", f"{store}:json/1/model"],
        ["show", f"{store}:json/1/model/shared"],
        ["show", f"{store}:json/1/@orig"],
        ["check", store], ["reindex", store],
        ["export", f"{store}:json/1", tmp / "json-out"],
        ["cp", "--metrics", '{"loss": [1, {"x": null}]}',
         f"{store}:json/1", f"{store}:json/2"],
        ["log", f"{store}:json"], ["show", f"{store}:json/2"],
        ["mv", f"{store}:json/2", f"{store}:json/3"],
        ["tag", "-d", store, "keep"],
        ["rm", "-n", f"{store}:json/3"], ["rm", "-r", f"{store}:json"],
    ]
    seen = {}
    for argv in calls:
        got = loads(run(argv[0], "--json", *argv[1:]), argv)
        seen.setdefault(argv[0], []).append(got)
    for command, values in seen.items():
        for v in values:
            if command == "show" and "tensors" in v:
                for t in v["tensors"]:
                    against_page(command, t)
                continue
            check(v, f"{command} --json says something")
            against_page(command, v)
    # test_mount_options.py has mount's
    equal(set(page()) - set(seen), {"mount"}, "the page's commands")
    equal(seen["show"][-1]["metrics"], {"loss": [1, {"x": None}]},
          "metrics come back")


def hostile(tmp):
    """Names that would break a table, a shell or JSON."""
    store = new_store(tmp, "hostile")
    tensors = {n: np.zeros(2, np.float32)
               for n in ['"', "\\", "\n", "\x1b[31m", "\x7f", "é", "", "a/b",
                         "\u2028", "x" * 300]}
    safetensors.numpy.save_file(tensors, tmp / "h.safetensors",
                                metadata={'"k\n': "\\v\x01"})
    for n in HOSTILE:
        run("import", "-q", tmp / "h.safetensors", f"{store}:{n}")
    equal(sorted(log(store)), sorted(HOSTILE), "log names them all")
    for n in HOSTILE:
        got = loads(run("show", "--json", f"{store}:{n}"), n)
        equal(got.get("name"), n, "show --json gives the name")
        tags = loads(run("tag", "--json", f"{store}:{n}", n), n) \
            if n[0] not in "-" and len(n) < 200 else {"tag": n}
        equal(tags.get("tag"), n, "tag --json gives the tag")
    got = loads(run("show", "--json", f"{store}:{HOSTILE[0]}/model"), "item")
    equal(sorted(t["name"] for t in got["tensors"]), sorted(tensors),
          "tensor names come back")
    for argv in (["log", store], ["tag", "-l", store], ["stat", store],
                 ["show", f"{store}:%41"], ["show", f"{store}:%41/model"]):
        out = run(*argv).stdout
        check(b"\x1b" not in out and b"\x7f" not in out,
              f"{argv[0]} prints no control bytes: {out!r:.200}")
    run("ls", "--json", "-R", store)
    # a name is itself before it is a pattern
    run("rm", "-f", f"{store}:[x]*?")
    equal(len(log(store)), len(HOSTILE) - 1, "one was removed")
    run("rm", "-f", "--", f"{store}:-rf")


# ---- the commands ----

def logs(store):
    equal(log(store), [f"run/{n}" for n in (4, 3, 2, 1)], "newest first")
    equal(log(store, "-r"), [f"run/{n}" for n in (1, 2, 3, 4)], "reversed")
    equal(log(store, "-n", "2"), ["run/4", "run/3"], "limit")
    equal(log(store, "--sort", "name"), [f"run/{n}" for n in (1, 2, 3, 4)],
          "by name")
    equal(log(store, "--step", "200:300"), ["run/3", "run/2"], "steps")
    equal(log(store, "--step", ":100"), ["run/1"], "up to a step")
    equal(log(store, "--step", "400:"), ["run/4"], "from a step")
    equal(log(store, "--step", "300"), ["run/3"], "one step")
    equal(len(log(store, "--since", "1h")), 4, "since an hour")
    equal(log(store, "--since", "1000000w"), log(store),
          "since before what a clock of nanoseconds can say")
    for day in "2099-01-01", "2400-01-01":
        equal(log(store, "--since", day), [], "since a date to come")
    equal(log(f"{store}:run/[12]"), ["run/2", "run/1"], "a pattern")
    equal(log(f"{store}:run"), log(store), "a run")
    rows = loads(run("log", "--json", store), "log")["checkpoints"]
    for r in rows:
        # 4,000 shared and 800 own; the kept header is equal in all
        equal((r["own_bytes"], r["step"]), (800, int(r["name"][4:]) * 100),
              f"own bytes of {r['name']}")
        equal(r["bytes"], r["stored_bytes"], "raw codec: stored as it is")
        equal(r["shared_bytes"], r["stored_bytes"] - 800, "shared bytes")
    text = run("log", store).stdout.decode()
    check(text.startswith("NAME") and "run/4" in text, f"a table: {text}")
    check("\x1b" not in text, "no colour into a pipe")
    check("\x1b[1m" in run("log", "--color=always", store).stdout.decode(),
          "--color=always")
    env = dict(os.environ, NO_COLOR="1")
    check("\x1b" not in run("log", "--color=auto", store, env=env)
          .stdout.decode(), "NO_COLOR")


def shows(store):
    text = run("show", f"{store}:run/latest").stdout.decode()
    for word in ("run/4", "400", "I64 x 1", "F32 x 1", "800 B its own"):
        check(word in text, f"show says {word!r}: {text}")
    same = run("cat", f"{store}:run/1/model/h/0/own.txt").stdout
    for name in ("h.0.own", "h/0/own", "h/0/own.npy", "h/0/own.txt"):
        equal(run("show", f"{store}:run/1/model/{name}").stdout, same,
              f"show of {name} is its .txt")
    equal(run("show", f"{store}:run//1//model/h.0.own").stdout, same,
          "show of a path with more slashes than it needs")
    p = run("show", f"{store}:run/1//none", ok=False)
    check("no item 'none'" in one_sentence(p, "what is behind '//'"), p.stderr)
    got = loads(run("show", "--json", f"{store}:run/1/model/h"), "folder")
    equal([t["name"] for t in got["tensors"]], ["h.0.own"], "a folder")
    got = loads(run("show", "--json", f"{store}:run/3/model/h.0.own"), "t")
    equal((got["shape"], got["statistics"]["min"], got["statistics"]["mean"]),
          ([100], 3, 3), "a tensor's facts")


def stats(store):
    got = loads(run("stat", "--json", store), "stat")
    equal((got["checkpoints"], got["packs"], got["duplicate_chunks"]),
          (4, 4, 0), "stat counts")
    by = {d["dtype"]: d for d in got["dtypes"]}
    equal((by["F32"]["bytes"], by["F32"]["unique_bytes"],
           by["F32"]["dedup_ratio"]), (16000, 4000, 4), "F32 is shared")
    equal((by["I64"]["bytes"], by["I64"]["unique_bytes"]), (3200, 3200),
          "I64 is not")


def edits(store):
    equal(run("tag", f"{store}:run/1", "best").stdout,
          b"tag 'best' names 'run/1'\n", "what tag says")
    p = run("tag", "-l", "-d", store, ok=False)
    check(p.returncode == 2 and "-l and -d" in one_sentence(p, "both"), p)
    p = run("rm", f"{store}:run/1", ok=False)
    check("'best'" in one_sentence(p, "rm of a tagged one"), "names the tag")
    run("mv", f"{store}:run/1", f"{store}:a/b/c")
    equal(run("show", f"{store}:@best").stdout.split()[1], b"a/b/c",
          "a tag follows")
    got = run("cat", "--tensor", "h.0.own", f"{store}:@best/model").stdout
    equal(got, np.full(100, 1, np.int64).tobytes(), "@TAG/ITEM")
    run("cp", "--step", "7", f"{store}:@best", f"{store}:fork")
    run("rm", "-f", f"{store}:a/b/c")
    check(not (store / "checkpoints/a").exists(), "empty runs go")
    equal(loads(run("tag", "-l", "--json", store), "tags"), {"tags": []},
          "its tag is gone")
    equal(run("cat", "--tensor", "h.0.own", f"{store}:fork").stdout,
          np.full(100, 1, np.int64).tobytes(), "the fork has the bytes")
    run("mv", f"{store}:run/[23]", f"{store}:fork", f"{store}:kept/")
    equal(log(store, "--sort", "name"),
          ["kept/2", "kept/3", "kept/fork", "run/4"], "many into a run")
    p = run("rm", "-n", f"{store}:kept/*", "--step", "200:")
    equal(p.stdout, b"would remove kept/2\nwould remove kept/3\n", "rm -n")
    equal(len(log(store)), 4, "rm -n removes nothing")
    p = run("rm", "-n", f"{store}:kept/2", "--step", "300:")
    check(b"kept" not in p.stdout, f"a name is chosen from, too: {p.stdout}")
    run("rm", "-r", f"{store}:kept", "--step", "300")
    equal(log(store, "--sort", "name"), ["kept/2", "kept/fork", "run/4"],
          "rm -r --step")
    equal(run("check", "--full", store).returncode, 0, "all is well")
    equal(run("check", f"{store}:kept/*").stdout.split()[0], b"2",
          "check of a pattern")
    equal(run("ls", f"{store}:kept/[!2]*").stdout, b"kept/fork/\n",
          "ls of a pattern")


def many(store):
    """Several names are looked at first: a clash of one changes nothing."""
    for name in ("many/1", "many/2", "many/3", "else/1", "new/2"):
        run("cp", "-q", f"{store}:run/1", f"{store}:{name}")
    run("tag", f"{store}:many/3", "third")
    before = log(store, "--sort", "name")
    wrong = [
        (["mv", f"{store}:many/*", f"{store}:new/"],
         "'new/2' exists already; none of 3 was done"),
        (["cp", f"{store}:many/*", f"{store}:new/"], "'new/2' exists already"),
        (["mv", f"{store}:*/1", f"{store}:all/"],
         "'else/1' and 'many/1' would both be 'all/1'"),
        (["mv", f"{store}:many/2", f"{store}:many/1", f"{store}:new/2/"],
         "'new/2' is a checkpoint"),
        (["mv", f"{store}:many/*", f"{store}:many/"], "'many/1' exists"),
        (["rm", f"{store}:many/*"], "'third', which protects it; none of 3"),
        (["rm", "-n", f"{store}:many/*"], "'third'"),
    ]
    for argv, word in wrong:
        for option in ([], ["--json"]):
            p = run(*argv, *option, ok=False)
            text = one_sentence(p, argv)
            check(word in text, f"{argv} says {word!r}: {text}")
            equal((p.returncode, p.stdout), (1, b""), f"{argv} fails")
        equal(log(store, "--sort", "name"), before, f"{argv} changes nothing")
    # killed half-way: both names, one file; the same command ends it
    os.link(store / "checkpoints/many/1", store / "checkpoints/old-1")
    (store / "checkpoints/third").mkdir()
    os.rename(store / "checkpoints/old-1", store / "checkpoints/third/1")
    run("mv", f"{store}:many/*", f"{store}:third/")
    equal(log(f"{store}:third", "--sort", "name"),
          ["third/1", "third/2", "third/3"], "a half-done mv is finished")
    # the same twice is one
    run("rm", "-f", f"{store}:third/*", f"{store}:third/2")
    run("rm", f"{store}:else/1", f"{store}:new/2")


def exports(store, tmp):
    out = tmp / "patterns"
    p = run("export", f"{store}:run/*", out, ok=False)
    check("no folder" in one_sentence(p, "export to nowhere"), "says why")
    out.mkdir()
    run("export", f"{store}:run/[34]", out)
    equal(sorted(os.listdir(out)), ["3", "4"], "export of a pattern")
    equal(np.load(out / "3/model/h/0/own.npy").tolist(), [3] * 100,
          "exported bytes")


def places(store, tmp):
    """latest, newest and @TAG are names; a near miss is told what is meant."""
    run("tag", f"{store}:run/2", "two")
    # the highest step last but one
    model(tmp / "m.safetensors", 7)
    run("import", "--step", "5", tmp / "m.safetensors", f"{store}:run/5")
    for path, n in (("run/latest", 4), ("run/newest", 7), ("@two", 2),
                    ("run/latest/model", 4), ("@two/model", 2)):
        equal(run("cat", "--tensor", "h.0.own", f"{store}:{path}").stdout,
              np.full(100, n, np.int64).tobytes(), f"cat --tensor of {path}")
        if "model" in path:
            continue
        equal(run("check", "--full", f"{store}:{path}").stdout.split()[0],
              b"1", f"check of {path}")
        name = {4: "run/4", 7: "run/5", 2: "run/2"}[n]
        equal(log(f"{store}:{path}"), [name], f"log of {path}")
        equal(run("tag", f"{store}:{path}", "t").stdout.decode(),
              f"tag 't' names '{name}'\n", f"tag of {path}")
    run("tag", "-d", store, "t")
    run("tag", "-d", store, "two")
    run("rm", f"{store}:run/newest")
    equal(len(log(store)), 4, "rm of newest")
    wrong = [
        (["check", f"{store}:run/1/model"], f"wanted: '{store}:run/1'"),
        (["log", f"{store}:run/1/model"], f"wanted: '{store}:run/1'"),
        (["log", f"{store}:run/1//model"], f"wanted: '{store}:run/1'"),
        (["cat", "--tensor", "shared", f"{store}:run"], "'run/latest'"),
        (["cat", "--tensor", "shared", f"{store}:run/1/model/h"],
         "such as 'run/1/model'"),
        (["cat", "--tensor", "shared", f"{store}:run/9"], "'9'"),
        (["cat", "--tensor", "h.0.onw", f"{store}:run/1"],
         "did you mean 'h.0.own'?"),
        (["cat", "--tensor", "shraed", f"{store}:run/1/model"],
         "did you mean 'shared'?"),
        (["cat", "--tensor", "shared", f"{store}:run/1/modle"],
         "did you mean 'model'?"),
        (["cat", f"{store}:run/1/model/h.0.own"], "there is 'h/0/own.npy'"),
        (["cat", f"{store}:run/1/model/h.0.own.txt"],
         "there is 'h/0/own.txt'"),
        (["ls", f"{store}:run/1/model.shared"], "there is 'model/shared.npy'"),
        (["show", f"{store}:run/1/model/h.0.onw"], "did you mean 'h.0.own'?"),
        (["show", f"{store}:run/1/model/h/0/onw.npy"],
         "did you mean 'h.0.own'?"),
        (["show", f"{store}:run/1/modle"], "did you mean 'model'?"),
        (["cat", f"{store}/run/1:model/shared.npy"],
         f"did you mean '{store}:run/1/model/shared.npy'?"),
        (["import", tmp / "m.safetensors", f"{store}/run/1"],
         f"did you mean '{store}:run/1'?"),
        (["ls", f"{store}/checkpoints/run/1"],
         f"did you mean '{store}:run/1'?"),
    ]
    wrong += [([c, f"{store}/run/1"], f"did you mean '{store}:run/1'?")
              for c in ("ls", "cat", "show", "log", "stat", "check", "rm",
                        "reindex")]
    for argv, word in wrong:
        p = run(*argv, ok=False)
        text = one_sentence(p, argv)
        check(word in text, f"{argv} says {word!r}: {text}")
        equal((p.returncode, p.stdout), (1, b""), f"{argv} fails")


def mistakes(store, tmp):
    run("init", tmp / "second")
    run("tag", f"{store}:run/1", "held")
    before = log(store)
    wrong = [
        (2, ["show", store], "STORE:CKPT"),
        (2, ["show"], "wanted"),
        (1, ["show", f"{store}:run"], "is a run"),
        (1, ["show", f"{store}:run/9"], "'9'"),
        (1, ["show", f"{store}:run/1/modle"], "modle"),
        (1, ["show", f"{store}:run/1/model/nope"], "nope"),
        (2, ["log", "--step", "x", store], "'x'"),
        (2, ["log", "--step", "5:3", store], "'5:3'"),
        (2, ["log", "--since", "soon", store], "'soon'"),
        (2, ["log", "--sort", "age", store], "'age'"),
        (2, ["log", "--limit", "-1", store], "'-1'"),
        (2, ["log", "--lmit", "3", store], "did you mean '--limit'"),
        (2, ["log", "--color=red", store], "'red'"),
        (2, ["lgo", store], "did you mean 'log'"),
        (2, ["xyzzy", store], "no command 'xyzzy'"),
        (1, ["log", f"{store}:nope"], "nope"),
        (1, ["log", f"{store}:nope*"], "log lists"),
        (2, ["rm"], "wanted"),
        (2, ["rm", store], "no checkpoint"),
        (1, ["rm", f"{store}:run"], "-r"),
        (1, ["rm", f"{store}:run/2", f"{store}:nope"], "nope"),
        (1, ["rm", f"{store}:x*"], "log lists"),
        (1, ["rm", f"{store}:run/1"], "'held'"),
        (1, ["rm", f"{store}:../ckptfs.json"], "ckptfs.json"),
        (1, ["rm", f"{tmp}/nowhere:x"], "nowhere"),
        (2, ["mv", f"{store}:run/1"], "STORE:TO"),
        (1, ["mv", f"{store}:run/1", f"{store}:run/2"], "exists"),
        (1, ["mv", f"{store}:run/1", f"{store}:run"], "is a run"),
        (1, ["mv", f"{store}:run/1", f"{store}:run/2/x"], "run/2"),
        (2, ["mv", f"{store}:run/*", f"{store}:new"], "new/"),
        (1, ["mv", f"{store}:run/1", f"{tmp}/second:x"], "two stores"),
        (1, ["mv", f"{store}:run/1", f"{store}:a//b"], "a//b"),
        (2, ["mv", f"{store}:run/1", store], "names no checkpoint"),
        (1, ["mv", f"{store}:run", f"{store}:x"], "the pattern 'run/*'"),
        (1, ["cp", f"{store}:run", f"{store}:x"], "the pattern 'run/*'"),
        (2, ["import", tmp / "m.safetensors", f"{store}:run/"],
         "STORE:RUN/NAME"),
        (1, ["log", f"{store}x"], f"did you mean '{store}'?"),
        (1, ["ls", f"{tmp}/sotre:run"], f"did you mean '{store}'?"),
        (1, ["log", f"{tmp}/secnod/x"], "ckptfs init"),
        (2, ["--verison"], "did you mean '--version'?"),
        (2, ["--json"], "behind a command, not so '--json'"),
        (2, ["-x", store], "behind a command"),
        (1, ["cp", f"{store}:run/1", f"{store}:run/2"], "exists"),
        (1, ["cp", f"{store}:run/9", f"{store}:x"], "run/9"),
        (1, ["cp", "--metrics", "[1]", f"{store}:run/1", f"{store}:x"],
         "metrics"),
        (2, ["cp", "--step", "x", f"{store}:run/1", f"{store}:x"], "'x'"),
        (2, ["tag", store, "t"], "lacks"),
        (2, ["tag", "-l", f"{store}:run/1"], "whole STORE"),
        (1, ["tag", f"{store}:run/1", "a/b"], "a/b"),
        (1, ["tag", f"{store}:run", "t"], "run"),
        (1, ["tag", "-d", store, "nope"], "nope"),
        (1, ["ls", f"{store}:@nope"], "nope"),
        (2, ["stat", f"{store}:run/1"], "whole STORE"),
        (1, ["stat", tmp], "not a ckptfs store"),
        (1, ["check", f"{store}:z*"], "log lists"),
        (1, ["export", f"{store}:z*", tmp], "log lists"),
        (1, ["ls", f"{store}:z*"], "log lists"),
    ]
    for code, argv, word in wrong:
        p = run(*argv, ok=False)
        text = one_sentence(p, " ".join(map(str, argv)))
        equal(p.returncode, code, f"exit code of {argv}")
        check(word in text, f"{argv} says {word!r}: {text}")
        check("ask to" not in text or argv[0] == "import",
              f"{argv} advises what is there: {text}")
        equal(p.stdout, b"", f"{argv} prints nothing")
    equal(log(store), before, "mistakes change nothing")
    equal(os.listdir(store / "staging"), [], "mistakes leave no staging")
    run("tag", "-d", store, "held")


FULL = "No space left on device"


def full(*argv):
    """The sentence of a command whose output goes to /dev/full."""
    with open("/dev/full", "wb") as out:
        p = subprocess.run([PROGRAM, *map(os.fsencode, argv)], stdout=out,
                           stderr=subprocess.PIPE)
    equal(p.returncode, 1, f"{argv} to /dev/full")
    return one_sentence(p, f"{argv} to /dev/full")


def outputs(store, tmp):
    """What cannot be written is said once, with the reason."""
    for argv in (["--help"], ["--version"], ["help", "ls"], ["ls", "--help"],
                 ["ls", store], ["ls", "-lR", store], ["ls", "--json", store],
                 ["log", store], ["log", "--json", store], ["stat", store],
                 ["stat", "--json", store], ["show", f"{store}:run/1"],
                 ["show", f"{store}:run/1/model"], ["check", store],
                 ["check", "--json", store],
                 ["cat", f"{store}:README.txt", f"{store}:README.txt"]):
        text = full(*argv)
        check(text.endswith(f"cannot write the output: {FULL}\n"), text)
    for args in ([], ["--json"]):
        text = full("import", *args, tmp / "m.safetensors", f"{store}:full")
        check("the checkpoint was saved, but the summary cannot be written: "
              + FULL in text, text)
        equal(log(f"{store}:full"), ["full"], "it was saved")
        text = full("rm", *args, f"{store}:full")
        check("what was asked was done, but" in text, text)
        check("full" not in log(store), "it was removed")
    check("the store was made, but" in full("init", tmp / "made"), "init")
    check("the index was made, but" in full("reindex", store), "reindex")


def two_places(store, tmp):
    """cat goes on as cat(1) does; --cells and --full may stand together."""
    readme = run("cat", f"{store}:README.txt").stdout
    (tmp / "a").write_bytes(readme)
    want = subprocess.run(["cat", tmp / "a", tmp / "none", tmp / "a"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p = run("cat", f"{store}:README.txt", f"{store}:run/1/none",
            f"{store}:README.txt", ok=False)
    equal((p.stdout, p.returncode), (want.stdout, want.returncode),
          "cat of three places, one of them absent")
    one_sentence(p, "cat of an absent place between others")
    own = [np.full(100, n, np.int64).tobytes() for n in (1, 2)]
    equal(run("cat", "--tensor", "h.0.own", f"{store}:run/1",
              f"{store}:run/2").stdout, b"".join(own), "a tensor of two")
    p = run("cat", "--json", f"{store}:README.txt", ok=False)
    equal((p.returncode, p.stdout), (2, b""), "cat --json is wrong usage")
    one_sentence(p, "cat --json")
    # other bytes with their right XXH3: only their SHA-256 tells, and so only
    # --full. The record of FORMAT.md: one cell, its XXH3 at 88, the header's
    # at 96, the bytes at 104.
    forged = tmp / "forged"
    shutil.copytree(store, forged)
    for pack in (forged / "packs").rglob("*.pack"):
        data = bytearray(pack.read_bytes())
        at = data.find(own[0]) - 104
        if at >= 0:
            data[at + 104] = 99
            data[at + 88:at + 96] = xxh3(data[at + 104:at + 904]).to_bytes(
                8, "little")
            data[at + 96:at + 104] = xxh3(data[at:at + 96]).to_bytes(
                8, "little")
            pack.chmod(0o644)
            pack.write_bytes(data)
    for options, code in ((["--cells"], 0), (["--full"], 3),
                          (["--cells", "--full"], 3),
                          (["--full", "--cells"], 3)):
        equal(run("check", *options, forged, ok=False).returncode, code,
              f"check {options} of forged bytes")


def counts(store, tmp):
    """Four checkpoints of two tensors; kept headers are counted apart."""
    equal(run("check", store).stdout.decode().split(", ")[:2],
          ["4 checkpoints", "8 tensors"], "check")
    equal(run("check", f"{store}:run/1").stdout.decode().split(", ")[:2],
          ["1 checkpoint", "2 tensors"], "check of one")
    got = loads(run("check", "--json", store), "check")
    equal((got["checkpoints"], got["tensors"], got["files"], got["damage"],
           got["damaged"], got["unread"]), (4, 8, 0, [], 0, 0),
          "check --json")
    got = loads(run("stat", "--json", store), "stat")
    equal((got["total"]["tensors"],
           {d["dtype"]: d["tensors"] for d in got["dtypes"]}),
          (8, {"F32": 4, "I64": 4, "headers": 4}), "stat --json")
    check("4, 0 tags\n" in run("stat", store).stdout.decode(), "no tags")
    run("tag", f"{store}:run/1", "t")
    check("4, 1 tag\n" in run("stat", store).stdout.decode(), "one tag")
    run("tag", "-d", store, "t")
    one = new_store(tmp, "one")
    safetensors.numpy.save_file({"w": np.zeros(1, np.uint8)},
                                tmp / "w.safetensors")
    check("': 1 tensor, " in run("import", tmp / "w.safetensors", f"{one}:x")
          .stdout.decode(), "one tensor was imported")
    check(run("check", one).stdout.startswith(b"1 checkpoint, 1 tensor, "),
          "one of each")
    check(run("reindex", one).stdout.decode().endswith(
        "of 1 pack and 1 checkpoint; 0 files could not be read\n"), "reindex")
    check("exported 1 file, " in run("export", f"{one}:x/model/w.npy",
                                     tmp / "w.npy").stdout.decode(), "export")
    equal(loads(run("init", "--json", tmp / "j"), "init"),
          {"store": str(tmp / "j")}, "init says where")


def listing(store):
    """ls --json against the checkpoints' own facts."""
    made = {r["name"]: r["created"] for r in
            loads(run("log", "--json", store), "log")["checkpoints"]}
    rows = {r["name"]: r for r in
            loads(run("ls", "--json", f"{store}:run"), "ls")["entries"]}
    for n in "1234":
        equal(rows[n]["time"], made[f"run/{n}"], "time of a checkpoint")
        equal(rows[n]["target"], None, "a checkpoint leads nowhere")
    for link in ("latest", "newest"):
        equal((rows[link]["kind"], rows[link]["target"], rows[link]["size"]),
              ("link", "4", 1), f"{link} leads to the last")
    for r in loads(run("ls", "-R", "--json", store), "ls")["entries"]:
        check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z",
                           r["time"]), f"RFC 3339: {r}")


# what must not reach a terminal as it is, and what must
HIDDEN = ["\x1b[31m", "\x7f", "\x85", "\u00ad", "\u061c", "\u200b", "\u200e",
          "\u202e", "\u2028", "\u2066", "\u3164", "\ufe0f", "\ufeff",
          "\U000e0041"]
SHOWN = ["t\u00e4b", "\u65e5\u672c", "\u03a9", "a\\x41", "\U0001f642"]


def visible(name):
    bad = {h[0] for h in HIDDEN}
    return "".join("".join(f"\\x{b:02x}" for b in c.encode()) if c in bad
                   else c for c in name)


def on_terminal(*argv, columns=60, code=0):
    """What a terminal of so many columns gets, on both outputs."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ,
                struct.pack("HHHH", 24, columns, 0, 0))
    p = subprocess.Popen([PROGRAM, *map(os.fsencode, argv)], stdout=slave,
                         stderr=slave,
                         env=dict(os.environ, LC_ALL="C.UTF-8", NO_COLOR="1"))
    os.close(slave)
    got = b""
    try:
        while data := os.read(master, 65536):
            got += data
    except OSError:
        pass  # the other end is closed
    os.close(master)
    equal(p.wait(), code, f"{argv} on a terminal")
    return got.decode().replace("\r\n", "\n")


def shown(tmp):
    """Names in tables: whole, escaped once, cut only on terminals."""
    store = new_store(tmp, "shown")
    names = HIDDEN + SHOWN + ["x" * 300]
    arrays = {n: np.full(300, i + 1, np.float32) for i, n in enumerate(names)}
    safetensors.numpy.save_file(arrays, tmp / "n.safetensors")
    run("import", "--codec", "raw", tmp / "n.safetensors", f"{store}:a")
    env = dict(os.environ, LC_ALL="C.UTF-8")
    rows = run("show", f"{store}:a/model", env=env).stdout.decode()
    for n in names:
        check(f"\n{visible(n)} " in rows, f"show has {visible(n)!r}: {rows}")
    rows = run("show", f"{store}:a/model",
               env=dict(env, LC_ALL="C")).stdout
    check(rows.isascii() and b"\nt\\xc3\\xa4b " in rows, "in the C locale")
    for argv in (["show", f"{store}:a/model"],
                 ["ls", "-l", f"{store}:a/model"]):
        for line in on_terminal(*argv).splitlines():
            wide = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1
                       for c in line)
            check(wide <= 60 and not any(h in line for h in HIDDEN),
                  f"{argv} fits: {line!r}")
    plain = on_terminal("ls", f"{store}:a/model")
    for n in HIDDEN[2:] + SHOWN:
        check(f"\n{visible(n)}.npy\n" in f"\n{plain}",
              f"ls on a terminal has {visible(n)!r}")
    # names and paths in sentences and summaries
    odd = "\u202eevil"
    (tmp / odd).write_bytes((tmp / "n.safetensors").read_bytes())
    for argv, code in ((["import", tmp / odd, f"{store}:{odd}"], 0),
                       (["cp", f"{store}:{odd}", f"{store}:{odd}2"], 0),
                       (["mv", f"{store}:{odd}2", f"{store}:{odd}3"], 0),
                       (["rm", "-n", f"{store}:{odd}3"], 0),
                       (["rm", f"{store}:{odd}2"], 1), ([odd], 2),
                       (["ls", f"--{odd}"], 2),
                       (["export", f"{store}:{odd}3/checkpoint.json",
                         tmp / f"{odd}.json"], 0),
                       (["rm", f"{store}:{odd}", f"{store}:{odd}3"], 0),
                       (["init", tmp / f"{odd}-store"], 0)):
        said = on_terminal(*argv, code=code)
        check("\u202e" not in said and
              ("\\xe2\\x80\\xaeevil" in said or argv[0] == "rm"),
              f"{argv} escapes names: {said!r}")
    raw = run("ls", f"{store}:a/model").stdout.decode().split("\n")
    check("\u202e.npy" in raw, "ls into a pipe gives the name itself")
    # damage in all of them: the same names, escaped once; JSON as they are
    for pack in (store / "packs").rglob("*.pack"):
        data = bytearray(pack.read_bytes())
        for a in arrays.values():
            at = data.find(a.tobytes())
            if check(at >= 0, "the codec leaves small tensors as they are"):
                data[at + 100] ^= 1
        pack.chmod(0o644)
        pack.write_bytes(data)
    p = run("check", "--cells", store, env=env, ok=False)
    equal(p.returncode, 3, "check of damage")
    rows = p.stdout.decode()
    for n in names:
        check(f" model/{visible(n)} " in rows,
              f"check has {visible(n)!r}: {rows}")
    got = loads(run("check", "--cells", "--json", store, ok=False), "check")
    against_page("check", got)
    equal(sorted(d["tensor"] for d in got["damage"]),
          sorted(f"model/{n}" for n in names), "check --json: raw names")
    equal((got["damaged"], got["tensors"]), (len(names), len(names)),
          "check --json counts")


def reindexed(store, tmp):
    """The reason is the system's own: full, read-only."""
    if os.geteuid() != 0:
        left_out("reindex of full and read-only stores: root is needed")
        return
    script = """set -e
        mount -t tmpfs -o size=2m none "$1"; cp -r "$2" "$1/s"
        rm -f "$1"/s/index.db*
        dd if=/dev/zero of="$1/z" bs=1k 2>/dev/null || true
        "$3" reindex "$1/s" || echo rc=$?
        rm "$1/z"; mount -o remount,ro "$1"
        "$3" reindex "$1/s" || echo rc=$?"""
    (tmp / "small").mkdir()
    p = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh",
                        tmp / "small", store, PROGRAM],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(p.returncode, 0, f"the script: {p.stderr}")
    equal(p.stdout, b"rc=1\n" * 2, "both fail")
    lines = p.stderr.decode().splitlines()
    check(len(lines) == 2 and lines[0].endswith(FULL) and
          lines[1].endswith("Read-only file system"), f"reasons: {lines}")


def unreadable(store):
    """What the system denies is not called damaged, and is said once."""
    file = store / "checkpoints/run/2"
    nobody = {"program": for_others(store.parent)}
    if os.geteuid() == 0:
        nobody.update(user=65534, group=65534, cwd="/")
    file.chmod(0)
    for argv in (["ls", "-l", f"{store}:run"], ["ls", "-R", store],
                 ["ls", "--json", f"{store}:run"], ["log", store],
                 ["log", "--json", store], ["check", store],
                 ["check", "--json", store]):
        p = run(*argv, ok=False, **nobody)
        equal(p.returncode, 1, f"{argv} of what may not be read")
        text = one_sentence(p, argv)
        check("Permission denied" in f"{text}{p.stdout}" and
              "run/2" in f"{text}{p.stdout}" and
              b" damaged" not in p.stdout and "damaged" not in text,
              f"{argv}: {text}{p.stdout}")
        check(argv[0] == "check" or re.search(rb'3/|"3"|run/3', p.stdout),
              "the rest is listed")
    p = run("stat", "--json", store, ok=False, **nobody)
    one_sentence(p, "stat of what may not be read")
    got = loads(p, "stat")
    equal((got["damaged"], got["unread"], got["checkpoints"], p.returncode),
          (0, 1, 3, 1), "stat of what may not be read")
    # a hint opens no manifest, so nothing is said of this one
    one_sentence(run("cat", f"{store}:run/22", ok=False, **nobody), "a hint")
    file.chmod(0o644)
    os.chmod(store.parent, 0o700)


def vanishing(store):
    """Checkpoints that come and go while they are listed are no failure."""
    over = threading.Event()

    def churn():
        n = 0
        while not over.is_set():
            n = (n + 1) % 20
            run("cp", "-q", f"{store}:run/1", f"{store}:go/{n}")
            run("rm", "-q", f"{store}:go/{n}")

    thread = threading.Thread(target=churn)
    run("cp", "-q", f"{store}:run/1", f"{store}:go/stays")
    thread.start()
    for i in range(60):
        p = run("ls", *(["-R"], ["-l"], ["--json"])[i % 3],
                f"{store}:go" if i % 2 else store)
        equal(p.stderr, b"", "ls of what vanishes says nothing")
    over.set()
    thread.join()
    run("rm", "-r", f"{store}:go")


def damage(store):
    """Exit code 3, the rest still shown, and it can be removed."""
    file = store / "checkpoints/run/2"
    whole = file.read_bytes()
    file.write_bytes(whole[:5000])
    p = run("log", "--json", store, ok=False)
    equal(p.returncode, 3, "log of a damaged one")
    rows = {r["name"]: r for r in loads(p, "log")["checkpoints"]}
    check(rows["run/2"]["damage"] and rows["run/1"]["damage"] is None,
          "it is said which")
    check("run/2" in one_sentence(p, "log of a damaged one"), "on stderr too")
    equal(run("stat", store, ok=False).returncode, 3, "stat")
    for argv in (["show", f"{store}:run/2"], ["ls", f"{store}:run/2"],
                 ["ls", f"{store}:run"], ["ls", "-R", store],
                 ["ls", "-l", f"{store}:run/*"],
                 ["ls", "--json", f"{store}:run"],
                 ["cat", f"{store}:run/2/checkpoint.json",
                  f"{store}:run/9"],
                 ["cat", "--tensor", "shared", f"{store}:run/2"]):
        p = run(*argv, ok=False)
        equal(p.returncode, 3, f"exit code of {argv}")
        lines = p.stderr.decode().splitlines()
        equal(sum("'run/2'" in line for line in lines), 1,
              f"{argv} names it once: {lines}")
        equal(len(lines), 2 if str(argv[-1]).endswith("9") else 1,
              f"{argv}: {lines}")
    text = run("ls", f"{store}:run", ok=False).stdout.decode().split()
    equal(text[:4], ["1/", "2/", "3/", "4/"], "ls lists all once")
    rows = {r["name"]: r["kind"] for r in loads(
        run("ls", "--json", f"{store}:run", ok=False), "ls")["entries"]}
    equal((rows["2"], rows["1"]), ("damaged", "checkpoint"), "ls: kinds")
    file.write_bytes(whole)
    equal(len(log(store)), 4, "healed")


def index(store):
    """With the index gone, or telling lies, the same table."""
    want = run("log", "--json", store).stdout
    (store / "index.db").unlink()
    for end in ("-wal", "-shm"):
        (store / f"index.db{end}").unlink(missing_ok=True)
    equal(run("log", "--json", store).stdout, want, "without an index")
    run("reindex", store)
    equal(run("log", "--json", store).stdout, want, "after reindex")
    with sqlite3.connect(store / "index.db") as db:
        db.execute("UPDATE checkpoint SET step = 1, seq = 999, own = 0")
    equal(run("log", "--json", store).stdout, want, "with a lying index")
    run("reindex", store)


def main():
    with folder() as tmp:
        store = fill(tmp)
        logs(store)
        shows(store)
        stats(store)
        index(store)
        damage(store)
        unreadable(store)
        counts(store, tmp)
        listing(store)
        outputs(store, tmp)
        two_places(store, tmp)
        reindexed(store, tmp)
        vanishing(store)
        shown(tmp)
        places(store, tmp)
        mistakes(store, tmp)
        exports(store, tmp)
        many(store)
        all_json(store, tmp)
        edits(store)
        hostile(tmp)
    done()


main()
