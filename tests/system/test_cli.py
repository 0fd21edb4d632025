# SPDX-License-Identifier: Apache-2.0
"""The command as a new user meets it: help, mistakes, JSON, export."""
import json
import os

from ckptest import *

import numpy as np
import safetensors.numpy

COMMANDS = ["init", "import", "export", "ls", "cat", "show", "log", "stat",
            "cp", "mv", "rm", "tag", "check", "reindex", "mount", "umount"]


def common_options(store):
    """Those of all commands: bundled, shortened, refused where they would
    mean nothing, and none of theirs behind --."""
    run("tag", f"{store}:run/1", "t")
    equal(run("tag", "-dq", store, "t").stdout, b"", "-dq is -d and -q")
    equal(run("ls", "-lv", store).stdout, run("ls", "-l", store).stdout,
          "-lv is -l and -v")
    json.loads(run("ls", "--js", store).stdout)
    check(b"\x1b" in run("log", "--color", "always", store).stdout,
          "--color WHEN in two words")
    said = run("import", "-qh", ok=False)
    equal((said.returncode, said.stdout),
          (0, run("import", "--help").stdout), "-h within a bundle")
    refused = {"-q": ["ls", "cat", "show", "log", "stat", "mount", "umount"],
               "-v": ["init", "mount", "umount"], "--json": ["cat", "umount"]}
    for option in refused:
        for c in COMMANDS:
            if c in refused[option]:
                p = run(c, option, ok=False)
                equal(p.returncode, 2, f"{c} {option}")
                check(f"no option '{option}'" in p.stderr.decode(), p.stderr)
            lists = any(option in line.split()[:2] or
                        option + "," in line.split()[:2] for line in
                        run(c, "--help").stdout.decode().splitlines())
            equal(lists, c not in refused[option], f"{c} --help, {option}")
    p = run("mount", "--json", store, store, ok=False)
    check("--status" in one_sentence(p, "mount --json"), p.stderr)
    for options in ([], ["-v"]):
        (store / "index.db").write_bytes(b"rubbish")
        p = run("import", *options, store.parent / "m.safetensors",
                f"{store}:v")
        equal(b"note: the index" in p.stderr, options == ["-v"],
              f"notes with {options}: {p.stderr}")
        run("rm", f"{store}:v")
    p = run("ls", "--", "-l", ok=False)
    check("'-l'" in one_sentence(p, "ls -- -l"), "a store called -l")


def helps():
    top = run("--help").stdout.decode()
    for c in COMMANDS:
        check(f"  {c} " in top, f"--help lists {c}")
        text = run(c, "--help").stdout.decode()
        check(text.startswith(f"usage: ckptfs {c} "), f"{c} --help")
    check(run("--version").stdout.startswith(b"ckptfs "), "--version")
    equal(run(ok=False).returncode, 2, "no command is usage")


def mistakes(store, tmp):
    file = tmp / "m.safetensors"
    wrong = [
        (2, ["imprt", file, f"{store}:x"], "did you mean 'import'"),
        (2, ["import", file], "SOURCE and STORE:NAME"),
        (2, ["import", "--dtype", "F9", file, f"{store}:x"], "'F9'"),
        (2, ["import", file, store], "lacks the checkpoint's name"),
        (2, ["import", "--codec", "zip", file, f"{store}:x"], "'zip'"),
        (2, ["import", "--step", "-3", file, f"{store}:x"], "'-3'"),
        (2, ["import", "--bogus", file, f"{store}:x"], "--bogus"),
        (2, ["import", file, f"{store}:x", "--item"],
         "'--item' wants a value"),
        (2, ["import", "--item", "--replace", file, f"{store}:x"],
         "write '--item=--replace'"),
        (2, ["import", "--item", "-q", file, f"{store}:x"],
         "'-q' looks like an option"),
        (2, ["import", f"{store}:x", file], "SOURCE comes first"),
        (2, ["import", store, tmp / "absent"], "SOURCE comes first"),
        (2, ["export", tmp / "out", f"{store}:run/1"], "then DEST"),
        (2, ["mount", tmp, store], "then DIR"),
        (2, ["export", f"{store}:run/1", f"{store}:run/2"], "place in a store"),
        (2, ["export", f"{store}:run/1", f"{store}:"], "place in a store"),
        (2, ["export", f"{store}:run/1", "-"], "standard output"),
        (2, ["export", "--force=1", f"{store}:run/1", tmp / "out"],
         "'--force' takes no value, so not '--force=1'"),
        (2, ["ls", "--json=1", store], "'--json' takes no value"),
        (2, ["log", "--s", store], "'--s' may be '--sort' or '--step'"),
        (2, ["ls", "-lZ", store], "no option '-Z'"),
        (2, ["ls", "-json", store], "did you mean '--json'"),
        (2, ["log", "--lmit=3", store], "did you mean '--limit'"),
        (2, ["export", "--forced", store, tmp], "did you mean '--force'"),
        (2, ["log", "-n"], "'-n' wants a value"),
        (2, ["log", "-rn"], "'-n' wants a value"),
        (2, ["log", "-n", "-r", store], "write '-n-r'"),
        (2, ["ls", "--color", "pink", store], "not 'pink'"),
        (2, ["ls", "-\u00e9", store], "no option"),
        (1, ["import", tmp / "absent", f"{store}:x"], "absent"),
        (1, ["import", tmp, f"{store}:x"], "a ckptfs store"),
        (1, ["import", "/dev/null", f"{store}:x"], "a device"),
        (1, ["import", file, f"{store}:a/../b"], ".."),
        (1, ["import", file, f"{store}:latest"], "latest"),
        (1, ["import", file, f"{store}:run/1"], "exists"),
        (1, ["import", file, f"{store}:run"], "run"),
        (1, ["import", file, f"{store}:run/1/deeper"], "run/1"),
        (1, ["import", "--metadata", "[1]", file, f"{store}:x"], "object"),
        (1, ["import", file, f"{tmp}/nowhere:x"], "nowhere"),
        (1, ["ls", tmp], "not a ckptfs store"),
        (1, ["ls", f"{store}:rnu"], "rnu"),
        (1, ["cat", f"{store}:run/1/model/wieght.npy"], "weight.npy"),
        (1, ["cat", f"{store}:run/1/model"], "folder"),
        (1, ["cat", "--tensor", "nope", f"{store}:run/1"], "nope"),
        (1, ["cat", "--tensor", "weight", f"{store}:run/9"], "'9'"),
        (1, ["check", f"{store}:run/9"], "run/9"),
        (1, ["init", store], "store"),
        (1, ["init", tmp], ""),
        (1, ["export", f"{store}:run/9", tmp / "out"], "run"),
        (1, ["export", f"{store}:run/1", store], ""),
    ]
    for code, argv, word in wrong:
        p = run(*argv, ok=False)
        text = one_sentence(p, " ".join(map(str, argv)))
        equal(p.returncode, code, f"exit code of {argv}")
        check(word in text, f"{argv} says {word!r}: {text}")
    equal(os.listdir(store / "staging"), [], "mistakes leave no staging")


def names(store, tmp):
    """Checkpoint names with characters others take for patterns."""
    for name in ["bs=8_data=[[1],[2,3]]+x?*", "日本/é", "a b/c:d", "%41"]:
        run("import", tmp / "m.safetensors", f"{store}:{name}")
        got = run("cat", "--tensor", "weight", f"{store}:{name}").stdout
        equal(len(got), 4 * 12, f"name {name!r}")
    listing = json.loads(run("ls", "--json", "-R", store).stdout)
    check(any(e["name"] == "bs=8_data=[[1],[2,3]]+x?*"
              for e in listing["entries"]), "ls --json names it")


def order(store, tmp):
    """order-01, order-02: highest step and last commit differ."""
    for step in ("step_500", "2500", "10000", "300"):
        run("import", tmp / "m.safetensors", f"{store}:order/{step}")
    run("import", "--step", "20000", tmp / "m.safetensors",
        f"{store}:order/best")
    run("import", tmp / "m.safetensors", f"{store}:order/700")
    said = run("ls", f"{store}:order").stdout.decode().split("\n")
    check("latest -> best" in said, f"latest: {said}")
    check("newest -> 700" in said, f"newest: {said}")
    # after the words of trainers, and by number
    for step in (2500, 10000, 500):
        run("import", tmp / "m.safetensors", f"{store}:named/step_{step}")
    said = run("ls", f"{store}:named").stdout.decode()
    check("latest -> step_10000\n" in said and "newest -> step_500\n" in said,
          said)
    for step in (2500, 10000, 500):
        run("import", "--step", str(step), tmp / "m.safetensors",
            f"{store}:given/step_{step}")
    said = run("ls", f"{store}:given").stdout.decode()
    check("latest -> step_10000\n" in said and "newest -> step_500\n" in said,
          said)


def steps(store, tmp):
    """The rule of ckptfs-import(1)."""
    words = ["global_step", "step", "checkpoint", "ckpt", "iteration", "iter",
             "epoch", ""]
    want = {f"{w}{s}12": 12 for w in words for s in "-_=" if w}
    want |= {f"{w}012": 12 for w in words}
    want |= {str(2**63 - 1): 2**63 - 1, str(2**63): None, "step": None,
             "steps_4": None, "v4": None, "4a": None, "step--4": None,
             "-4": None, "my_step_4": None}
    for name, step in want.items():
        run("import", "-q", tmp / "m.safetensors", f"{store}:s/{name}")
        equal(json.loads(run("show", "--json", f"{store}:s/{name}").stdout)
              ["step"], step, f"step of {name}")
    run("import", "--step", "3", tmp / "m.safetensors", f"{store}:t/4")
    equal(json.loads(run("show", "--json", f"{store}:t/4").stdout)["step"], 3,
          "--step is believed")


def without_standard(store, tmp):
    """No file of the store takes the place of a closed 1 or 2: strace(1) shows
    what every opened file became."""
    if not shutil.which("strace") or subprocess.run(
            ["strace", "-qq", "-o", "/dev/null", "true"],
            stderr=subprocess.DEVNULL).returncode != 0:
        print("nothing may be traced here: closed descriptors not looked at")
        return
    p = subprocess.run(
        ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", "strace", "-f", "-qq",
         "-e", "trace=openat,open", "-o", tmp / "log", PROGRAM, "import",
         tmp / "m.safetensors", f"{store}:run/closed"],
        env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
    equal(p.returncode, 1, "the summary cannot be written")
    check(run("check", "--full", f"{store}:run/closed").returncode == 0,
          "what was imported")
    taken = [r for r in (tmp / "log").read_text().split("\n")
             if str(tmp) in r and r.rsplit(" ", 1)[1] in ("0", "1", "2")]
    equal(taken, [], "files in the place of standard descriptors")
    run("rm", "-q", f"{store}:run/closed")


def exports(store, tmp):
    out = tmp / "out"
    run("export", f"{store}:run/1/model", out)
    equal(np.load(out / "weight.npy").tolist(),
          list(range(12)), "exported folder")
    one_sentence(run("export", f"{store}:run/1/model", out / "weight.npy",
                     ok=False), "export onto a file")
    run("export", f"{store}:run/1/model/weight.npy", tmp / "w.npy")
    one_sentence(run("export", f"{store}:run/1/model/weight.npy",
                     tmp / "w.npy", ok=False), "export onto a file")
    run("export", "--force", f"{store}:run/1/model/weight.npy",
        tmp / "w.npy")
    equal([p.name for p in tmp.glob(".*partial*")], [], "no leftovers")
    facts = json.loads(run("cat",
                           f"{store}:run/1/checkpoint.json").stdout)
    equal((facts["name"], facts["step"]), ("run/1", 1), "checkpoint.json")
    text = run("cat", f"{store}:run/1/model/weight.txt").stdout.decode()
    for word in ("weight", "F32", "12", "mean"):
        check(word in text, f".txt says {word}: {text}")


def whole_stores(store, tmp):
    """STORE, STORE: and, of $CKPTFS_STORE, a lone ':'."""
    env = dict(os.environ, CKPTFS_STORE=str(store))
    want = run("stat", store).stdout
    equal(run("stat", f"{store}:").stdout, want, "stat STORE:")
    equal(run("stat", ":", env=env).stdout, want, "stat :")
    run("reindex", ":", env=env)
    run("init", ":", env=dict(env, CKPTFS_STORE=str(tmp / "default")))
    check((tmp / "default/ckptfs.json").exists(), "init :")
    wrong = [
        (2, ["init", f"{store}:x"], "is a place in the store"),
        (2, ["init", ":x"], "is a place in the store"),
        (2, ["init", tmp / "no:x"], "reads like a checkpoint"),
        (2, ["init", f"{tmp}/no:x/"], "reads like a checkpoint"),
        (1, ["init", f"{store}:"], "is a ckptfs store already"),
        (2, ["stat", f"{store}:x"], f"give '{store}'"),
        (2, ["mount", f"{store}:run/1", tmp], f"give '{store}'"),
        (2, ["mount", ":run/1", tmp], f"give '{store}'"),
        (1, ["stat", tmp / "no:x"], "no' does not exist"),
    ]
    for code, argv, word in wrong:
        p = run(*argv, ok=False, env=env)
        text = one_sentence(p, argv)
        equal(p.returncode, code, f"exit code of {argv}")
        check(word in text, f"{argv} says {word!r}: {text}")
    check(not (tmp / "no:x").exists(), "nothing was made")


def main():
    helps()
    with folder() as tmp:
        safetensors.numpy.save_file(
            {"weight": np.arange(12, dtype=np.float32)},
            tmp / "m.safetensors")
        store = new_store(tmp)
        run("import", tmp / "m.safetensors", f"{store}:run/1")
        mistakes(store, tmp)
        common_options(store)
        whole_stores(store, tmp)
        names(store, tmp)
        order(store, tmp)
        steps(store, tmp)
        without_standard(store, tmp)
        exports(store, tmp)
        env = dict(os.environ, CKPTFS_STORE=str(store))
        p = run("cat", "--tensor", "weight", ":run/1", env=env)
        equal(len(p.stdout), 48, "CKPTFS_STORE")
        odd = tmp / "with:colon"
        odd.mkdir()
        run("init", odd)
        run("import", tmp / "m.safetensors", f"{odd}:x:y")
        equal(run("ls", odd).stdout.decode().split()[-1], "x:y/",
              "a store whose path holds ':'")
    done()


main()
