# SPDX-License-Identifier: Apache-2.0
"""Completion as the shells do it: bash's own variables, a real function call;
with the argument "shells" in zsh and fish, which `contrib/setup --checks`
installs."""
import os
import pty
import shutil
import subprocess
import sys

from ckptest import *
from mounts import need

import numpy as np
import safetensors.numpy

SCRIPTS = ROOT / "contrib/completions"
# What bash sets for a line with the cursor at its end: words are cut at its
# COMP_WORDBREAKS, quotes kept, which python does here by the same rule.
DRIVER = r"""
source "$1"; shift
COMP_LINE=$1; COMP_POINT=${#1}; shift
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_ckptfs
printf '%s\n' "${COMPREPLY[@]}"
"""


def bash_words(line):
    """bash's splitting: at blanks, and at runs of : = @, which are words too,
    but in quotes."""
    words, word, quote = [], "", ""
    it = iter(line)
    for c in it:
        breaks = word != "" and word[-1] in ":=@"
        if quote:
            word += c
            quote = "" if c == quote else quote
        elif c == "\\":
            word += c + next(it, "")
        elif c == " ":
            if word:
                words.append(word)
            word = ""
        else:
            if word and breaks != (c in ":=@"):
                words.append(word)
                word = ""
            word += c
            quote = c if c in "\"'" else ""
    if word or line.endswith(" "):
        words.append(word)
    return words


def bash(line):
    p = subprocess.run(
        ["bash", "--norc", "-c", DRIVER, "bash", SCRIPTS / "ckptfs.bash",
         line, *bash_words(line)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(p.stderr, b"", f"bash says nothing at {line!r}")
    return p.stdout.decode().split("\n")[:-1]


def in_bash(store, tmp):
    def typed(text):
        return f"{PROGRAM} {text}"
    check("import" in bash(typed("")), "commands")
    equal(bash(typed("lo")), ["log"], "a command")
    equal(bash(typed("log --li")), ["--limit"], "an option")
    check("-r" in bash(typed("rm -")), "short options")
    equal(bash(typed("import --li")), ["--limit-rate"], "an import's")
    equal(bash(typed("stat --sa")), ["--save-seconds"], "stat's")
    equal(bash(typed("log --color=a")), ["auto", "always"], "a value")
    equal(bash(typed(f"ls {store}:r")), ["run/"], "a run")
    equal(bash(typed(f"ls {store}:run/1")), ["run/1/", "run/10/"],
          "checkpoints")
    check("run/" in bash(typed(f"ls {store}:")), "an empty path")
    equal(bash(typed(f"cat {store}:run/1/model/h/0/w.n")),
          ["run/1/model/h/0/w.npy"], "a tensor")
    equal(bash(typed(f"ls {store}:@b")), ["@best"], "a tag")
    equal(bash(typed(f"ls {store}:@")), ["@best"], "any tag")
    equal(bash(typed(f"mv {store}:run/1 {store}:run/10/m")),
          ["run/10/model/"], "the second place")
    equal(bash(typed(f"ls {tmp}/with:colon:a/b")), ["a/b:c/"],
          "a store and a name with colons")
    for begun in ("ls ", f"ls {store}:run/ ", "ls -l ", "log --json "):
        equal(bash(typed(begun)), [""], f"an empty word behind {begun!r}")
    odd = f"{tmp}/o d"
    for quoted, offers in (
            (f"{tmp}/o\\ d:it", ["it\\'s/", "it\\ \\$x/"]),
            (f"{tmp}/o\\ d:it\\ ", ["it\\ \\$x/"]),
            (f"'{odd}:it", [f"{odd}:it'\\''s/", f"{odd}:it $x/"]),
            (f'"{odd}:it', [f"{odd}:it's/", f"{odd}:it \\$x/"]),
            (f"'{odd}':it", ["it\\'s/", "it\\ \\$x/"]),
            (f"{tmp}/o\\ d:'it ", ["it $x/"])):
        equal(sorted(bash(typed(f"ls {quoted}"))), sorted(offers),
              f"in quotes: {quoted}")
    equal(bash(typed("mount -")).count("-o"), 1, "an option once")
    equal(bash(typed(f"ls {tmp}/nowhere:x")), [""], "no store")
    equal(bash(typed(f"ls {store}:nope/x")), [""], "nothing there")


def in_a_terminal(store):
    """Readline itself: TAB completes, Enter runs what it made of the line."""
    env = dict(os.environ, TERM="dumb", PS1="$ ", NO_COLOR="1",
               PATH=f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}")
    child, fd = pty.fork()
    if child == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)
    os.write(fd, f"source {SCRIPTS}/ckptfs.bash\n".encode())
    os.write(fd, f"ckptfs log --js\t {store}:oth\t\n".encode())
    # a name with a blank, in quotes and without; a tag
    os.write(fd, f"ckptfs ls '{store}:a b/s\t\n"
                 f"ckptfs show --json {store}:a\\ \ttp\t\n"
                 f"ckptfs log --json {store}:@be\t\nexit\n".encode())
    said = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.waitpid(child, 0)
    for want in (b'{"checkpoints": [{"name": "other/2"', b"checkpoint.json",
                 b'{"name": "a b/tp"', b'{"checkpoints": [{"name": "run/1"'):
        check(want in said, f"TAB in a terminal gives {want}: {said!r}")


def in_zsh(store):
    """Needs a terminal of its own: the function alone, compadd replaced."""
    script = (f"compadd() {{ while [[ $1 != -- ]]; do shift; done; shift; "
              f"print -l -- $@ }}; _files() {{ print files }}; "
              f"words=({PROGRAM} ls {store}:run/1); CURRENT=3; "
              f"source {SCRIPTS}/_ckptfs")
    p = subprocess.run(["zsh", "-f", "-c", script], stdout=subprocess.PIPE)
    equal(p.stdout.decode().split(), [f"{store}:run/1/", f"{store}:run/10/"],
          "zsh: checkpoints")


def in_fish(store):
    env = dict(os.environ, PATH=f"{os.path.dirname(PROGRAM)}:"
                                f"{os.environ['PATH']}")
    p = subprocess.run(
        ["fish", "-N", "-c", f"source {SCRIPTS}/ckptfs.fish; "
         f"complete -C 'ckptfs ls {store}:run/1'"],
        stdout=subprocess.PIPE, env=env)
    equal([w.split("\t")[0] for w in p.stdout.decode().split("\n") if w],
          [f"{store}:run/1/", f"{store}:run/10/"], "fish: checkpoints")


def never_loud(store, tmp):
    """Whatever is typed, `complete` exits 0 and says nothing on stderr."""
    shutil.copytree(store, tmp / "hurt")
    (tmp / "hurt/checkpoints/run/1").write_bytes(b"rubbish")
    for argv in ([], [""], ["nope", ""], ["ls", f"{tmp}/hurt:run/1/m"],
                 ["ls", f"{tmp}/hurt:run/"], ["ls", ":"], ["ls", "::"],
                 ["ls", "/:"], ["ls", f"{store}:../"], ["--json", "x"],
                 ["ls", f"{store}:@"], ["ls", b"\xff\xfe:".decode(
                     errors="surrogateescape")], ["ls", f"{store}:\n"]):
        p = run("complete", *argv, ok=False)
        equal((p.returncode, p.stderr), (0, b""), f"complete {argv}")


def main():
    shells = sys.argv[1:] == ["shells"]
    need(*(["zsh", "fish"] if shells else ["bash"]))
    with folder() as tmp:
        store = new_store(tmp)
        safetensors.numpy.save_file({"h.0.w": np.zeros(3, np.float32)},
                                    tmp / "m.safetensors")
        for name in ("run/1", "run/10", "other/2"):
            run("import", tmp / "m.safetensors", f"{store}:{name}")
        run("tag", f"{store}:run/1", "best")
        odd = new_store(tmp, "o d")
        for name in ("it's", "it $x"):
            run("import", tmp / "m.safetensors", f"{odd}:{name}/1")
        for name in ("sp", "tp"):
            run("import", tmp / "m.safetensors", f"{store}:a b/{name}")
        (tmp / "with:colon").mkdir()
        run("init", tmp / "with:colon")
        run("import", tmp / "m.safetensors", f"{tmp}/with:colon:a/b:c")
        if shells:
            in_zsh(store)
            in_fish(store)
        else:
            in_bash(store, tmp)
            in_a_terminal(store)
            never_loud(store, tmp)
    done()


main()
