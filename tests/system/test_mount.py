# SPDX-License-Identifier: Apache-2.0
"""The mount's life: it answers when `mount` returns; what it refuses; how it
ends."""
import os
import signal
import subprocess

from ckptest import *
from mounts import *

import numpy as np
import safetensors.numpy


def refusals(store, tmp):
    text = one_sentence(run("mount", store, store, ok=False), "on the store")
    check("overlap" in text, text)
    inner = store / "packs"
    text = one_sentence(run("mount", store, inner, ok=False), "inside it")
    check("overlap" in text, text)
    text = one_sentence(run("mount", store, tmp, ok=False), "around it")
    check("overlap" in text, text)
    one_sentence(run("mount", store, tmp / "absent", ok=False), "absent")
    (tmp / "file").write_text("x")
    text = one_sentence(run("mount", store, tmp / "file", ok=False), "a file")
    check("not a folder" in text, text)
    text = one_sentence(run("mount", tmp / "x", tmp / "m", ok=False),
                        "no store")
    text = one_sentence(run("umount", tmp, ok=False), "umount of no mount")
    check("no ckptfs mount" in text, text)
    p = run("mount", "-o", "nonsense", store, tmp / "m", ok=False)
    equal(p.returncode, 2, "an unknown option is usage")


def lives(store, point):
    for _ in range(10):
        equal(run("mount", store, point).returncode, 0, "mount")
        check("README.txt" in os.listdir(point), "it answers at once")
        pid = daemon_of(point)
        os.kill(pid, signal.SIGTERM)
        check(wait_for(lambda: not os.path.ismount(point)),
              "SIGTERM unmounts")
        check(wait_for(lambda: ended(pid)), "the daemon ends")


def foreground(store, point):
    p = subprocess.Popen([PROGRAM, "mount", "-f", store, point],
                         stderr=subprocess.PIPE)
    check(wait_for(lambda: os.path.ismount(point)), "-f mounts")
    check(p.poll() is None, "-f stays")
    check("run" in os.listdir(point), "-f answers")
    p.send_signal(signal.SIGINT)
    equal(p.wait(10), 0, "-f ends well on SIGINT")
    check(not os.path.ismount(point), "-f unmounts")


def keeps_to_itself(store, point):
    """The daemon holds nothing of who called it, and reads far ahead."""
    read, write = os.pipe()
    subprocess.run([PROGRAM, "mount", store, point], check=True,
                   pass_fds=[write])
    os.close(write)
    os.set_blocking(read, False)
    try:
        equal(os.read(read, 1), b"", "the pipe's end")
    except BlockingIOError:
        check(False, "the daemon holds a pipe of its caller")
    os.close(read)
    if os.geteuid() == 0:
        for line in open("/proc/self/mountinfo"):
            if line.split()[4] == str(point):
                ahead = f"/sys/class/bdi/{line.split()[2]}/read_ahead_kb"
        os.stat(point)
        check(int(open(ahead).read()) >= 4096,
              f"read-ahead of the mount: {open(ahead).read()} KiB")
    else:
        left_out("the mount's read-ahead: root is needed")
    run("umount", point)


def without_standard(store, point):
    """Called with 0, 1 or 2 closed, as by some launchers."""
    for closed in "0<&-", "0<&- 1>&-", "0<&- 1>&- 2>&-":
        p = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", PROGRAM,
                            "mount", store, point], timeout=60)
        equal(p.returncode, 0, f"mount {closed}")
        check("run" in os.listdir(point), f"{closed}: it answers")
        equal(run("umount", point).returncode, 0, f"umount {closed}")


def ends_under_open_files(store, point):
    """SIGTERM while a file and a folder are open: a clean end."""
    p = subprocess.Popen([PROGRAM, "mount", "-f", store, point],
                         stderr=subprocess.PIPE)
    check(wait_for(lambda: os.path.ismount(point)), "-f mounts")
    held = [os.open(point / name, os.O_RDONLY) for name in
            ("README.txt", "run", ".ckptfs", "run/1/model/w.npy")]
    os.listdir(held[1])
    p.send_signal(signal.SIGTERM)
    equal(p.wait(10), 0, "it ends well under open files")
    for fd in held:
        os.close(fd)
    check(not os.path.ismount(point), "and unmounts")


def ends_alone(store, point):
    """SIGTERM takes down the daemon's own mount, not one that came in its
    place or on top of it."""
    run("mount", store, point)
    first = status(point)["pid"]
    with subprocess.Popen(["sleep", "60"], cwd=point / "run") as user:
        run("umount", "-l", point)
        run("mount", store, point)
        second = status(point)["pid"]
        os.kill(first, signal.SIGTERM)
        check(wait_for(lambda: ended(first)), "the detached one ends")
        check(os.path.ismount(point) and not ended(second),
              "the mount in its place is left")
        equal(status(point)["pid"], second, "and answers")
        user.kill()
    if os.geteuid() == 0:
        tool("mount", "-t", "tmpfs", "none", point)
        (point / "mine").write_text("kept")
        os.kill(second, signal.SIGTERM)
        check(wait_for(lambda: ended(second)), "the covered one ends")
        equal((point / "mine").read_text(), "kept", "what is on top is left")
        tool("umount", point)
    else:
        left_out("what is mounted on top of a mount: root is needed")
    run("umount", point)
    check(not os.path.ismount(point), "the dead one is cleared")


def busy_and_dead(store, point):
    run("mount", store, point)
    held = open(point / "README.txt")
    text = one_sentence(run("umount", point, ok=False), "a busy mount")
    check("in use" in text, text)
    held.close()
    pid = daemon_of(point)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: ended(pid))
    text = one_sentence(run("mount", store, point, ok=False), "a dead mount")
    check("umount" in text, text)
    equal(run("umount", point).returncode, 0, "umount clears a dead mount")
    equal(os.listdir(point), [], "the folder is plain again")


def new_ones_appear(store, tmp, point):
    with mounted(store, point):
        equal(os.readlink(point / "run/latest"), "1", "latest")
        fd = os.open(point / "run/1/model/w.npy", os.O_RDONLY)
        run("import", tmp / "m.safetensors", f"{store}:run/20")
        check(wait_for(lambda: "20" in os.listdir(point / "run"), 3),
              "a new checkpoint appears")
        check(wait_for(lambda: os.readlink(point / "run/latest") == "20", 3),
              "latest follows")
        safetensors.numpy.save_file({"w": np.full(5000, 7.0)},
                                    tmp / "n.safetensors")
        run("import", "--replace", tmp / "n.safetensors", f"{store}:run/1")
        equal(len(os.pread(fd, 1 << 20, 0)), 128 + 4 * 4000,
              "what is open keeps the old bytes")
        os.close(fd)
        check(wait_for(lambda: np.load(point / "run/1/model/w.npy").size ==
                       5000, 5), "a new open sees the new one")


def renamed_while_held(store, point):
    """A checkpoint renamed while its old name is in use keeps its place when
    that is let go."""
    run("cp", f"{store}:run/1", f"{store}:run/c")
    with mounted(store, point):
        old = os.open(point / "run/c", os.O_RDONLY)
        run("mv", f"{store}:run/c", f"{store}:run/a")
        check(wait_for(lambda: not (point / "run/c").exists()), "the old name")
        paths = [point / "run/a", point / "run/a/model/w.npy"]
        new = [os.open(p, os.O_RDONLY) for p in paths]
        inodes = [os.stat(p).st_ino for p in paths]
        before = status(point)["requests.forget"]
        os.close(old)
        check(wait_for(lambda: status(point)["requests.forget"] > before),
              "the kernel forgets the old one")
        looked = status(point)["requests.lookup"]
        check(wait_for(lambda: (point / "run/a").exists() and
                       status(point)["requests.lookup"] > looked),
              "the new name is looked up again")
        for path, fd, inode in zip(paths, new, inodes):
            equal(os.readlink(f"/proc/self/fd/{fd}"), str(path), "its path")
            equal(os.stat(path).st_ino, inode, "its inode number")
            os.close(fd)
    run("rm", "-q", f"{store}:run/a")


def main():
    need_fuse()
    with folder() as tmp:
        safetensors.numpy.save_file(
            {"w": np.arange(4000, dtype=np.float32)}, tmp / "m.safetensors")
        store = new_store(tmp)
        run("import", tmp / "m.safetensors", f"{store}:run/1")
        (tmp / "m").mkdir()
        refusals(store, tmp)
        lives(store, tmp / "m")
        foreground(store, tmp / "m")
        keeps_to_itself(store, tmp / "m")
        without_standard(store, tmp / "m")
        ends_under_open_files(store, tmp / "m")
        ends_alone(store, tmp / "m")
        busy_and_dead(store, tmp / "m")
        renamed_while_held(store, tmp / "m")
        new_ones_appear(store, tmp, tmp / "m")
    done()


main()
