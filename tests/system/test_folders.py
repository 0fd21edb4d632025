# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders as they are found: indexes that are stale, incomplete,
lying or odd; files that do not belong; pointers in place of files.

usage: test_folders.py [COUNT]     COUNT shards with few descriptors instead"""
import json
import os
import resource
import sys

from ckptest import *

import numpy as np
import safetensors.numpy

INDEX = "model.safetensors.index.json"
LFS = ("version https://git-lfs.github.com/spec/v1\n"
       "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d1"
       "7e2393\nsize 12345\n")


class Made:
    """A new folder with shards {file: {tensor: number}} and an index."""

    def __init__(self, tmp, name, shards, weight_map=None, dtype=np.int32,
                 **more):
        self.path, self.name = tmp / name, name
        self.store = tmp / "store"
        self.path.mkdir()
        for file, tensors in shards.items():
            self.shard(file, tensors, dtype)
        if weight_map is not None:
            self.index({"metadata": {"total_size": 12}, **more,
                        "weight_map": weight_map})

    def shard(self, file, tensors, dtype=np.int32):
        (self.path / file).parent.mkdir(exist_ok=True)
        safetensors.numpy.save_file(
            {n: np.full(3, i, dtype) for n, i in tensors.items()},
            self.path / file)

    def index(self, value):
        (self.path / INDEX).write_text(json.dumps(value))

    def imports(self, tensors, *options, notes=()):
        """As @tensors {name: number}; returns the command's JSON."""
        p = run("import", "--json", "--replace", *options, self.path,
                f"{self.store}:{self.name}", timeout=60)
        if p.returncode != 0:
            return None
        rows = json.loads(run("show", "--json",
                              f"{self.store}:{self.name}/model").stdout)
        equal(sorted(t["name"] for t in rows["tensors"]), sorted(tensors),
              f"{self.name}: its tensors")
        for n, i in tensors.items():
            got = run("cat", "--tensor", n, f"{self.store}:{self.name}")
            equal(got.stdout, np.full(3, i, np.int32).tobytes(),
                  f"{self.name}: bytes of {n}")
        said = json.loads(p.stdout)["notes"]
        equal(len(said), len(notes), f"{self.name}: notes {said}")
        for want in notes:
            check(any(want in s for s in said), f"{want!r} in {said}")
        return rows["tensors"]

    def refused(self, *says):
        p = run("import", self.path, f"{self.store}:refused", ok=False,
                timeout=60)
        text = one_sentence(p, self.name)
        for word in says:
            check(word in text, f"{self.name} says {word!r}: {text}")
        check(run("ls", f"{self.store}:refused", ok=False).returncode != 0,
              f"{self.name}: nothing is published")
        equal(os.listdir(self.store / "staging"), [], f"{self.name}: staging")


def follows_the_index(tmp):
    """index-01, 02, 03, 04, 05."""
    one, two = "model-00001-of-00002", "model-00002-of-00002"
    side = Made(tmp, "side", {f"{one}.safetensors": {"a": 1},
                              f"{two}.safetensors": {"b": 2},
                              "mtp.safetensors": {"m": 3}},
                {"a": f"{one}.safetensors", "b": f"{two}.safetensors",
                 "m": "mtp.safetensors"})
    side.imports({"a": 1, "b": 2, "m": 3})

    files = {f"model-{i:05}-of-00015.safetensors": {f"t{i}": i}
             for i in range(1, 16)}
    stale = Made(tmp, "stale", files,
                 {f"t{i}": f"model-{i:05}-of-00030.safetensors"
                  for i in range(1, 31)})
    stale.refused("not there (30)", "model-00001-of-00030.safetensors",
                  "--no-index")
    stale.imports({f"t{i}": i for i in range(1, 16)}, "--no-index")

    stray = Made(tmp, "stray", {"x.safetensors": {"a": 1},
                                "y.safetensors": {"b": 2}},
                 {"a": "x.safetensors", "b": "y.safetensors"})
    stray.shard("extra-4bit.safetensors", {"a": 9, "q": 9}, np.uint8)
    stray.imports({"a": 1, "b": 2},
                  notes=["'extra-4bit.safetensors' is not in the index"])

    needed = Made(tmp, "needed", {"model.safetensors": {f"l{i}": i for i in
                                                        range(310)},
                                  "projector.safetensors": {"p": 7}},
                  {f"l{i}": "model.safetensors" for i in range(310)})
    rows = {"l5": 5}
    p = run("import", "--json", needed.path, f"{needed.store}:needed")
    note = json.loads(p.stdout)["notes"]
    check(len(note) == 1 and "'projector.safetensors'" in note[0],
          f"what is left out is told: {note}")
    p = run("import", "--json", "--no-index", needed.path,
            f"{needed.store}:needed-all")
    equal(json.loads(p.stdout)["tensors"], 311, "--no-index takes it too")
    equal(run("cat", "--tensor", "p", f"{needed.store}:needed-all").stdout,
          np.full(3, 7, np.int32).tobytes(), "with its bytes")

    twice = Made(tmp, "twice", {f"{one}.safetensors": {"a": 1},
                                f"{two}.safetensors": {"b": 2},
                                "consolidated.safetensors": {"a": 1, "b": 2}})
    twice.refused("lie in two shards (2)", "consolidated.safetensors",
                  f"{one}.safetensors")


def odd_indexes(tmp):
    """index-06, 07: what else an index says decides nothing."""
    shards = {"x.safetensors": {"a": 1}, "y.safetensors": {"b": 2}}
    where = {"a": "x.safetensors", "b": "y.safetensors"}
    odd = Made(tmp, "odd", shards)
    for metadata in ({}, {"total_size": 0}, {"total_size": 99},
                     {"total_size": "many"}, {"total_size": None},
                     {"total_size": -1}, {"total_size": 1e300},
                     {"total_size": 12, "total_parameters": 3, "x": [{}]},
                     [], "text", None):
        odd.index({"metadata": metadata, "weight_map": where, "more": 1})
        odd.imports({"a": 1, "b": 2})
    odd.index({"weight_map": where})
    odd.imports({"a": 1, "b": 2})
    # and an incomplete one stays incomplete, whatever total_size says
    odd.index({"metadata": {"total_size": 12},
               "weight_map": {**where, "c": "y.safetensors"}})
    odd.refused("not in the shards it names (1): 'c'")
    os.truncate(odd.path / "y.safetensors",
                os.stat(odd.path / "y.safetensors").st_size - 1)
    odd.index({"metadata": {"total_size": 12}, "weight_map": where})
    odd.refused("y.safetensors")

    names = [f"model.layers.{i}.w" for i in (0, 1, 10, 11, 2)]
    plain = Made(tmp, "plain", {"weights.safetensors":
                                {n: i for i, n in enumerate(names)}},
                 {n: "weights.safetensors" for n in names},
                 metadata={"total_size": 3763650752,
                           "total_parameters": 1881825088})
    rows = plain.imports({n: i for i, n in enumerate(names)})
    equal([t["name"] for t in rows], sorted(names),
          "listed in the order of bytes")


def hostile(tmp):
    """index-08, 09, 10, 11: nothing outside, nothing that blocks, nothing
    that only stands for a file."""
    Made(tmp, "secret", {"secret.safetensors": {"s": 1}})
    bad = Made(tmp, "bad", {"a.safetensors": {"a": 1}})
    for path in ("../secret/secret.safetensors", "/etc/hostname",
                 str(tmp / "secret/secret.safetensors"), "..",
                 "x/../../secret/secret.safetensors", "./a.safetensors"):
        bad.index({"weight_map": {"s": path}})
        bad.refused(f"'{path}', which is no path inside")
    (bad.path / "sub").mkdir()
    bad.index({"weight_map": {"a": "sub"}})
    bad.refused("'sub'")
    bad.index({"weight_map": {"a": "pipe"}})
    for made, says in ((lambda p: os.mkfifo(p), "a FIFO"),
                       (lambda p: os.symlink("/dev/zero", p), "a device"),
                       (lambda p: os.symlink("../secret", p), "to a folder"),
                       (lambda p: os.symlink("nowhere", p), "leads nowhere")):
        made(bad.path / "pipe")
        bad.refused("pipe'", says)
        os.unlink(bad.path / "pipe")
    nested = Made(tmp, "nested", {"sub/ok.safetensors": {"a": 5}},
                  {"a": "sub/ok.safetensors"})
    nested.imports({"a": 5})
    # a link that the folder's owner made is followed, and says so in man
    linked = Made(tmp, "linked", {}, {"s": "l.safetensors"})
    os.symlink("../secret/secret.safetensors", linked.path / "l.safetensors")
    linked.imports({"s": 1})

    ours = LFS.replace("12345", "54321")
    for name, text, says in (
            ("pointer", LFS, "git lfs pull"),
            ("conflict", "<<<<<<< HEAD\n" + LFS + "=======\n" + ours +
             ">>>>>>> theirs\n", "git lfs pull"),
            ("conflict inside", LFS.replace(
                "oid", "<<<<<<< HEAD\noid") + "=======\n" + ours.split(
                    "\n", 1)[1] + ">>>>>>> theirs\n", "git lfs pull"),
            ("page", "<!DOCTYPE html>\n<html><body>404</body></html>\n",
             "an HTML page")):
        made = Made(tmp, name, {})
        (made.path / "model.safetensors").write_text(text)
        made.refused("model.safetensors'", says)
        made.index({"weight_map": {"a": "model.safetensors"}})
        made.refused("model.safetensors'", says)
        p = run("import", made.path / "model.safetensors",
                f"{made.store}:refused", ok=False)
        check(says in one_sentence(p, name), f"{name} alone: {p.stderr}")


def with_descriptors(count):
    def limits():
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    return limits


def many(tmp, count):
    """scale-07: few descriptors are enough, and too few are an error."""
    made = Made(tmp, "many", {f"m-{i:05}-of-{count:05}.safetensors":
                              {f"t{i}": i} for i in range(1, count + 1)})
    for limit in (256, 40):
        p = run("import", "--json", made.path, f"{made.store}:few/{limit}",
                preexec_fn=with_descriptors(limit))
        equal(json.loads(p.stdout)["tensors"], count, f"with {limit}")
    for i in (1, count // 2, count):
        got = run("cat", "--tensor", f"t{i}", f"{made.store}:few/40").stdout
        equal(got, np.full(3, i, np.int32).tobytes(), f"t{i}")
    refused = 0
    for limit in range(3, 24):
        p = run("import", "-q", made.path, f"{made.store}:none/{limit}",
                preexec_fn=with_descriptors(limit), ok=False)
        there = run("ls", f"{made.store}:none/{limit}", ok=False)
        equal(there.returncode == 0, p.returncode == 0,
              f"{limit} descriptors: there or not: {p.stderr.decode()}")
        if p.returncode == 0:
            break
        refused += 1
        check(b"oo many open files" in p.stderr or b"shared" in p.stderr,
              f"{limit} descriptors: {p.stderr.decode()}")
    check(refused > 3, f"{refused} limits are too few")
    equal(os.listdir(made.store / "staging"), [], "no staging is left")
    check(b"no damage" in run("check", "--full", made.store).stdout, "check")


def main():
    with folder() as tmp:
        new_store(tmp)
        if len(sys.argv) > 1:
            many(tmp, int(sys.argv[1]))
            done()
        follows_the_index(tmp)
        odd_indexes(tmp)
        hostile(tmp)
    done()


main()
