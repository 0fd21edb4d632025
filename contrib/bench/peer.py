#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker that holds a state and saves it with other people's libraries.

usage: peer.py torch|jax PREFIX

Run by peers.py and train_loop.py; answers each line of stdin with one of JSON:
  warm OP FOLDER                 before the first of
  save OP FOLDER                 into the empty FOLDER
  train STEPS EVERY WORK CORES [OP FOLDER]    as bench-save does
  calibrate SECONDS CORES
OP's spaces are written as underscores. A save is over when its files and
folders are synced; what the library left unsynced is synced here, and counted.
"""
import contextlib
import json
import os
import pathlib
import pickle
import sys
import time

import numpy as np

SIDE = 512 # of the matrices that training multiplies


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def sync_tree(path):
    for folder, _, files in os.walk(path, topdown=False):
        for f in files:
            sync(os.path.join(folder, f))
        sync(folder)
    sync(os.path.dirname(path))


class State:
    """Arrays as bytes, each in memory of its own, and the extra objects."""

    def __init__(self, prefix):
        index = json.loads(pathlib.Path(prefix + ".json").read_text())
        self.bytes, self.extra, self.parts = index["bytes"], {}, []
        with open(prefix + ".raw", "rb", buffering=0) as f:
            for t in index["tensors"]:
                data = np.empty(t["bytes"], np.uint8)
                self.fill(f, t, data)
                self.parts.append((t, data))
            for t in index["files"]:
                data = np.empty(t["bytes"], np.uint8)
                self.fill(f, t, data)
                self.extra = pickle.loads(data.tobytes())

    @staticmethod
    def fill(f, t, data):
        f.seek(t["offset"])
        at, view = 0, memoryview(data)
        while at < len(data):
            at += f.readinto(view[at:])

    def tree(self, leaf):
        out = {"extra": dict(self.extra)} if self.extra else {}
        for t, data in self.parts:
            group, name = t["name"].split("/", 1)
            out.setdefault(group, {})[name] = leaf(t, data)
        return out


class Torch:
    """torch.save, safetensors and torch.distributed.checkpoint."""

    def __init__(self, state):
        import torch
        self.state, self.torch = state, torch
        kinds = {"F32": torch.float32, "BF16": torch.bfloat16,
                 "I64": torch.int64}
        self.tree = state.tree(
            lambda t, data: torch.from_numpy(data).view(
                kinds[t["dtype"]]).reshape(t["shape"]))
        self.flat = {t["name"]: self.tree[t["name"].split("/", 1)[0]]
                     [t["name"].split("/", 1)[1]] for t, _ in state.parts}
        self.stager, self.key = None, 0
        self.ops = {"torch.save": self.save_torch,
                    "safetensors": self.save_safetensors,
                    "DCP 1 thread": lambda p, mark: self.save_dcp(p, 1),
                    "DCP 2 threads": lambda p, mark: self.save_dcp(p, 2),
                    "DCP async": self.save_async}

    def save_torch(self, path, mark):
        self.torch.save(self.tree, path + "/state.pt")

    def save_safetensors(self, path, mark):
        from safetensors.torch import save_file
        save_file(self.flat, path + "/state.safetensors",
                  metadata={"extra": json.dumps(self.state.extra)})

    @staticmethod
    def writer(path, threads):
        import torch.distributed.checkpoint as dcp
        return dcp.FileSystemWriter(path, sync_files=True,
                                    thread_count=threads)

    def save_dcp(self, path, threads):
        import torch.distributed.checkpoint as dcp
        dcp.save(self.tree, storage_writer=self.writer(path, threads))

    def warm(self, op):
        """What a training run did before its second asynchronous save."""
        if op != "DCP async" or self.stager:
            return
        import torch.distributed as dist
        from torch.distributed.checkpoint.staging import (DefaultStager,
                                                          StagingOptions)
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0,
                                    world_size=1)
        self.stager = DefaultStager(StagingOptions(False, False, False,
                                                   False))
        self.stager.stage(self.tree)

    def begin_async(self, path, op):
        import torch.distributed.checkpoint as dcp
        saved = dcp.async_save(self.tree, async_stager=self.stager,
                               storage_writer=self.writer(path, 1))
        return getattr(saved, "upload_completion", saved)

    def save_async(self, path, mark):
        saved = self.begin_async(path, "DCP async")
        mark()
        saved.result()

    def update(self):
        self.key = (self.key * 6364136223846793005 + 1442695040888963407
                    ) % 2**64
        low = np.uint64((self.key >> 7 | 1) & 0x000f000f000f000f)
        for _, data in self.state.parts:
            words = data[:len(data) // 8 * 8].view(np.uint64)
            np.bitwise_xor(words, low, out=words)


class Jax:
    """Orbax."""

    def __init__(self, state):
        import jax
        import ml_dtypes
        from orbax.checkpoint import v1 as ocp
        self.state, self.jax, self.ocp = state, jax, ocp
        jax.config.update("jax_enable_x64", True)
        cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
        kinds = {"F32": np.float32, "BF16": ml_dtypes.bfloat16,
                 "I64": np.int64}
        self.tree = jax.block_until_ready(state.tree(
            lambda t, data: jax.device_put(
                data.view(kinds[t["dtype"]]).reshape(t["shape"]), cpu)))
        state.parts = [] # what JAX copied is held once
        self.up, self.scale = None, 1 + 2.0 ** -7
        self.ops = {}
        for name in ("Orbax", "Orbax no zstd"):
            self.ops[name] = lambda p, mark, n=name: self.save(p, n)
        for name in ("Orbax async", "Orbax async no zstd"):
            self.ops[name] = lambda p, mark, n=name: self.save_async(
                p, mark, n)

    def context(self, op):
        if not op.endswith("no zstd"):
            return contextlib.nullcontext()
        options = self.ocp.Context()
        options.array.saving.use_compression = False
        return options

    def save(self, path, op):
        with self.context(op):
            self.ocp.save(path + "/ckpt", self.tree)

    def begin_async(self, path, op):
        with self.context(op):
            return self.ocp.save_async(path + "/ckpt", self.tree)

    def save_async(self, path, mark, op):
        saved = self.begin_async(path, op)
        mark()
        saved.result()

    def warm(self, op):
        pass

    def update(self):
        """Arrays of JAX are immutable: new ones take their place."""
        jax = self.jax
        if not self.up:
            self.up = jax.jit(lambda tree, scale: jax.tree.map(
                lambda x: (x * scale).astype(x.dtype), tree))
        extra = self.tree.pop("extra", None)
        self.tree = jax.block_until_ready(self.up(self.tree, self.scale))
        self.scale = 1 / self.scale
        if extra:
            self.tree["extra"] = extra


class Peer:
    def __init__(self, holder):
        self.holder = holder

    def save(self, op, folder):
        op = op.replace("_", " ")
        start = time.monotonic()
        returned = []
        self.holder.ops[op](folder, lambda: returned.append(
            time.monotonic() - start))
        done = time.monotonic() - start
        sync_tree(folder)
        durable = time.monotonic() - start
        return {"blocking": (returned or [durable])[0], "done": done,
                "durable": durable}

    def warm(self, op, folder):
        """Once before the first timed save: imports, buffers."""
        self.holder.warm(op.replace("_", " "))
        return self.save(op, folder)

    @staticmethod
    def compute(work):
        a = np.ones((SIDE, SIDE), np.float32)
        out = np.empty_like(a)
        for _ in range(work):
            np.matmul(a, a, out=out)

    def seconds_of(self, work):
        start = time.monotonic()
        self.compute(work)
        return time.monotonic() - start

    def calibrate(self, seconds, _cores):
        """_cores: this process was started with OPENBLAS_NUM_THREADS."""
        work, seconds = 8, float(seconds)
        least = self.seconds_of(work)
        while least < seconds / 4:
            work *= 2
            least = self.seconds_of(work)
        least = min(least, *(self.seconds_of(work) for _ in range(3)))
        return {"work": int(work * seconds / least) + 1}

    def train(self, steps, every, work, _cores, op="", folder=""):
        op, every, work = op.replace("_", " "), int(every), int(work)
        saved, blocked, count = None, 0.0, 0
        start = time.monotonic()
        for i in range(1, int(steps) + 1):
            self.compute(work)
            self.holder.update()
            if every and i % every == (every + 1) // 2:
                begin = time.monotonic()
                if saved:
                    saved.result()
                    sync_tree(path)
                path = f"{folder}/{i}"
                os.mkdir(path)
                saved = self.holder.begin_async(path, op)
                blocked += time.monotonic() - begin
                count += 1
        begin = time.monotonic()
        if saved:
            saved.result()
            sync_tree(path)
        end = time.monotonic()
        return {"total": end - start, "saves": count,
                "blocked": blocked + end - begin}


def main():
    kind, prefix = sys.argv[1:]
    peer = Peer({"torch": Torch, "jax": Jax}[kind](State(prefix)))
    answers = os.fdopen(os.dup(1), "w") # libraries print, too
    os.dup2(2, 1)
    reply = {"bytes": peer.holder.state.bytes}
    while True:
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        words = sys.stdin.readline().split()
        if not words:
            break
        try:
            reply = getattr(peer, words[0])(*words[1:])
        except Exception as e: # the peer's own failure is an answer
            reply = {"error": repr(e)[:500]}
    os._exit(0) # no library's farewell


main()
