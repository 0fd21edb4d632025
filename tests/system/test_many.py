# SPDX-License-Identifier: Apache-2.0
"""More checkpoints than descriptors: a mount that may have 64 of them shows,
reads and holds open files of hundreds of checkpoints."""
import os
import resource
import signal
import subprocess
import time

from ckptest import *

import numpy as np
import safetensors.numpy

COUNT = 150


def mount_with_few(store, point):
    p = subprocess.run(
        [PROGRAM, "mount", store, point], stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                              (64, 64)))
    equal(p.returncode, 0, f"mount: {p.stderr}")


def crawl(point):
    names = sorted(os.listdir(point / "run"))
    equal(len(names), COUNT + 2, "all are listed")
    for i in range(COUNT):
        w = np.load(point / f"run/{i}/model/w.npy")
        check((w == i).all(), f"run/{i} reads {w[:3]}")
    for i in range(COUNT):
        check("w.txt" in os.listdir(point / f"run/{i}/model"), f"ls run/{i}")
    equal(os.readlink(point / "run/latest"), str(COUNT - 1), "latest")


def held(point):
    """More open files than descriptors."""
    files = [os.open(point / f"run/{i}/model/w.npy", os.O_RDONLY)
             for i in range(COUNT)]
    for i, fd in enumerate(files):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        data = os.pread(fd, 1 << 20, 0)
        equal(len(data), 128 + 4 * 1000, f"file {i} reads whole")
        equal(np.frombuffer(data[128:], np.float32)[-1], i, f"file {i}")
    for fd in files:
        os.close(fd)


def ends_with_open_files(store, point):
    """SIGTERM while a file is open is an end like any other."""
    p = subprocess.Popen([PROGRAM, "mount", "-f", store, point],
                         stderr=subprocess.DEVNULL)
    for _ in range(200):
        if os.path.ismount(point):
            break
        time.sleep(0.05)
    with open(point / "run/1/model/w.npy", "rb") as f:
        f.read(10)
        p.send_signal(signal.SIGTERM)
        equal(p.wait(20), 0, "exit code of the daemon")


def main():
    need_fuse()
    with folder() as tmp:
        store = new_store(tmp)
        for i in range(COUNT):
            safetensors.numpy.save_file(
                {"w": np.full(1000, i, np.float32)}, tmp / "m.safetensors")
            run("import", tmp / "m.safetensors", f"{store}:run/{i}")
        point = tmp / "m"
        point.mkdir()
        mount_with_few(store, point)
        try:
            crawl(point)
            crawl(point)
            held(point)
        finally:
            run("umount", point)
        ends_with_open_files(store, point)
    done()


main()
