# SPDX-License-Identifier: Apache-2.0
"""How a mount is asked for: options, mount(8), fstab, systemd; what it tells
of itself; who keeps it busy; other users."""
import concurrent.futures
import errno
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

from ckptest import *
from mounts import *

import numpy as np
import safetensors.numpy

NOBODY = 65534


def sentences(store, point):
    cases = {
        "allow_othr": "did you mean 'allow_other'", "rw": "read-only",
        "xatr": "did you mean 'xattr'", "zzzzzz": "no mount option 'zzzzzz'",
        "cache=0": "from 1 to", "cache=1x": "'1x'", "umask=8": "octal",
        "uid=-1": "uid=", "suid": "cannot be had", "remount": "again",
        "dev": "no devices", "nosymfollow": "no mount option",
        "max_threads=0": "from 1 to 1024", "x-y,foo=1": "'foo=1'",
    }
    for option, says in cases.items():
        p = run("mount", "-o", option, store, point, ok=False)
        equal(p.returncode, 2, f"-o {option}")
        check(says in one_sentence(p, option), f"{option}: {p.stderr}")
        check("did you mean" not in p.stderr.decode() or "did" in says,
              f"no far guess: {p.stderr}")
    p = run("mount", f"{store.parent}/sotre", point, ok=False)
    check(f"did you mean '{store}'?" in one_sentence(p, "a near store"),
          p.stderr)
    check(not os.path.ismount(point), "nothing was mounted")


def line_of(point):
    """Of what is on top there."""
    found = None
    for line in open("/proc/self/mounts"):
        source, where, kind, options, *_ = line.split()
        if where == str(point):
            found = source, kind, options.split(",")
    return found


def options_work(store, point):
    with mounted(store, point, "-o", "ro,nosuid,nodev,noatime,nofail,_netdev,"
                 "x-systemd.automount,x-a=b,defaults,noauto,user",
                 "-o", "uid=1234,gid=4321,umask=037,noexec,cache=8,"
                 "max_threads=3,fsname=a\\,b"):
        source, kind, options = line_of(point)
        equal((source, kind), ("a,b", "fuse.ckptfs"), "fsname and type")
        for o in "ro", "nosuid", "nodev", "noatime", "noexec":
            check(o in options, f"{o} in {options}")
        st = os.stat(point / "run/1/model/w.npy")
        equal((st.st_uid, st.st_gid, st.st_mode & 0o7777),
              (1234, 4321, 0o440), "owner and mode of a file")
        equal(os.stat(point / "run").st_mode & 0o7777, 0o540, "of a folder")
        check(status(point)["threads"] <= 5, "max_threads")
    with mounted(store, point):
        equal(line_of(point)[0], str(store), "the store is the source")
    os.environ["CKPTFS_STORE"] = str(store)
    with mounted(":", point):
        equal(line_of(point)[0], str(store), "so is the default one")
    del os.environ["CKPTFS_STORE"]


def xattrs(store, point, array):
    file = point / "run/1/model/w.npy"
    with mounted(store, point):
        for call in (lambda: os.getxattr(file, "user.ckptfs.dtype"),
                     lambda: os.listxattr(file)):
            for _ in range(3):
                try:
                    call()
                    check(False, "an xattr without -o xattr")
                except OSError as e:
                    equal(e.errno, errno.ENOTSUP, "without -o xattr")
        equal(status(point)["requests.xattr"], 0, "no handler is called")
    with mounted(store, point, "-o", "xattr"):
        info = json.loads((point / "run/1/checkpoint.json").read_text())
        body = hashlib.sha256(array.tobytes()).digest()
        root = hashlib.sha256(
            b"ckptfs-root-1" + b"".join(n.to_bytes(4, "little") for n in
                                        (1, 32, array.ndim)) +
            b"".join(n.to_bytes(8, "little") for n in array.shape) + body)
        want = {"dtype": "F32", "shape": "[40,100]", "item": "model",
                "tensor": "w", "digest": root.hexdigest(),
                "checkpoint": info["uuid"]}
        got = {n: os.getxattr(file, n).decode() for n in os.listxattr(file)}
        equal(got, {"user.ckptfs." + k: v for k, v in want.items()},
              "attributes of a tensor")
        equal(os.listxattr(point / "run/1"), ["user.ckptfs.checkpoint"],
              "of a checkpoint")
        equal(os.listxattr(point / "run"), [], "of a run")
        for path, name in ((file, "user.none"), (point, "user.ckptfs.dtype"),
                           (file, "security.capability")):
            try:
                os.getxattr(path, name)
                check(False, f"{name} of {path}")
            except OSError as e:
                equal(e.errno, errno.ENODATA, f"{name} of {path}")
        import ctypes
        c = ctypes.CDLL(None, use_errno=True)
        small = ctypes.create_string_buffer(1)
        equal(c.getxattr(os.fsencode(file), b"user.ckptfs.dtype", small, 1),
              -1, "too small a buffer")
        equal(ctypes.get_errno(), errno.ERANGE, "its errno")
        equal(c.listxattr(os.fsencode(file), small, 1), -1, "the same, list")
        equal(ctypes.get_errno(), errno.ERANGE, "its errno, list")
        equal(c.getxattr(os.fsencode(file), b"user.ckptfs.dtype", None, 0), 3,
              "the length")
        tool("getfattr", "-d", "--absolute-names", file)
        equal(os.listxattr(point / ".ckptfs"), [], "of the status file")
        run("cp", f"{store}:run/1", f"{store}:hurt")
        manifest = store / "checkpoints/hurt"
        data = bytearray(manifest.read_bytes())
        data[30] ^= 1
        manifest.chmod(0o600)
        manifest.write_bytes(data)
        check(wait_for(lambda: (point / "hurt").exists()), "it is listed")
        for call in (lambda p: os.getxattr(p, "user.ckptfs.checkpoint"),
                     os.listxattr):
            try:
                call(point / "hurt")
                check(False, "an attribute of a damaged checkpoint")
            except OSError as e:
                equal(e.errno, errno.EIO, "of a damaged checkpoint")
    run("rm", "-q", f"{store}:hurt")


def says_of_itself(store, point):
    with mounted(store, point):
        listed = tool("ls", "-laR", point) + tool("find", point)
        check(b".ckptfs" not in listed, "the status file is not listed")
        before = status(point)
        data = (point / "run/1/model/w.npy").read_bytes()
        after = status(point)
        equal(after["bytes.served"] - before["bytes.served"], len(data),
              "bytes served")
        check(after["requests.open"] > before["requests.open"], "opens")
        equal(after["errors"], 0, "errors")
        # the one before may not have ended yet
        check(wait_for(lambda: daemon_of(point) == after["pid"]), "pid")
        equal(after["descriptors"],
              len(os.listdir(f"/proc/{after['pid']}/fd")) + 1,
              "descriptors, with the one that counts")
        p = run("mount", "--status", point, "--json")
        rows = {r["name"]: r["value"] for r in json.loads(p.stdout)["mount"]}
        equal(set(rows), set(after), "--status names the same")
        check(all(type(v) is int for v in rows.values()), "as numbers")
        try:
            open(point / ".ckptfs", "w")
            check(False, "the status file may be written")
        except OSError as e:
            equal(e.errno, errno.EROFS, "writing the status file")
        says_to_many(point)
    text = one_sentence(run("mount", "--status", point, ok=False), "no mount")
    check("no ckptfs mount" in text, text)


def says_to_many(point):
    """Whole each time, though many open, read and close at once."""
    def ask(_):
        for _ in range(200):
            with open(point / ".ckptfs") as f:
                rows = [r.split() for r in f]
            equal((rows[0][0], rows[-1][0]), ("requests.lookup", "pid"),
                  "the first and the last figure")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    equal(status(point)["pid"], daemon_of(point), "the daemon lives")


def before_1970(store, point):
    """Times of folders are those of the store, whatever they are."""
    (store / "checkpoints/old").mkdir()
    for ns in (-1500000000, -1, -10**18 - 7, 1, 0):
        os.utime(store / "checkpoints/old", ns=(0, ns))
        with mounted(store, point):
            equal(os.stat(point / "old").st_mtime_ns, ns, "a time")
    (store / "checkpoints/old").rmdir()


def given_as_store(store, point):
    """A path in a mount is no place; the sentence says which is."""
    for options, meant in (([], str(store)), (["-o", "fsname=x"], None)):
        with mounted(store, point, *options):
            for argv, rest in (
                    (["ls", f"{point}/run/1"], ":run/1"),
                    (["stat", point], ""), (["check", f"{point}:run"], ":run"),
                    (["cat", f"{point}/README.txt"], ":README.txt"),
                    (["show", f"{point}/run:1/model"], ":run/1/model")):
                text = one_sentence(run(*argv, ok=False), argv)
                want = f"did you mean '{meant}{rest}'?" if meant else \
                    "give the store itself"
                check(f"mount '{point}'" in text and want in text,
                      f"{argv} says {want!r}: {text}")


def covers(store, point):
    """What is on the mount point is hidden, and comes back; no second mount of
    ours on a first."""
    (point / "mine").write_text("kept")
    with mounted(store, point):
        equal(sorted(os.listdir(point)), ["README.txt", "run"], "files hidden")
        p = run("mount", store, point, ok=False)
        check("ckptfs umount" in one_sentence(p, "a second mount"), p.stderr)
    equal((point / "mine").read_text(), "kept", "files are there again")
    (point / "mine").unlink()
    tool("mount", "-t", "tmpfs", "none", point)
    with mounted(store, point):
        equal(line_of(point)[1], "fuse.ckptfs", "on top of another mount")
        tool("mount", "-t", "tmpfs", "none", point)
        p = run("umount", point, ok=False)
        check("no ckptfs mount" in one_sentence(p, "umount below another"),
              p.stderr)
        tool("umount", point)
    equal(line_of(point)[1], "tmpfs", "the other mount is left")
    tool("umount", point)


def busy(store, point):
    run("mount", store, point)
    holders = [
        subprocess.Popen(["sleep", "60"], cwd=point / "run"),
        subprocess.Popen(["tail", "-f", point / "README.txt"],
                         stdout=subprocess.DEVNULL),
        subprocess.Popen([sys.executable, "-c", "import ctypes, os, sys, time\n"
                          "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
                          "ctypes.CDLL(None).mmap(None, 4096, 1, 1, fd, 0)\n"
                          "os.close(fd)\ntime.sleep(60)",
                          point / "run/1/model/w.npy"])]
    wait_for(lambda: b"mapped" in run("umount", point, ok=False).stderr)
    text = one_sentence(run("umount", point, ok=False), "a busy mount")
    for p, says in zip(holders, ("(sleep: its working folder)",
                                 "(tail: an open file)", "a mapped file)")):
        check(f"{p.pid} " in text and says in text, f"{p.pid} {says}: {text}")
    check("umount -l" in text, text)
    text = one_sentence(run("umount", "..", ok=False, cwd=point / "run"),
                        "from within")
    check("ckptfs: its working folder" not in text and "'..'" in text,
          f"umount does not name itself: {text}")
    equal(run("umount", "-l", point).returncode, 0, "umount -l")
    check(not os.path.ismount(point), "it is detached")
    for p in holders:
        p.kill()
        p.wait()
    check(wait_for(lambda: daemon_of(point) is None or
                   ended(daemon_of(point))), "the daemon ends with the last")
    run("mount", store, point)
    lookers = [subprocess.Popen([sys.executable, "-c", "import os, sys\n"
                                 "while True: os.path.lexists(sys.argv[1])",
                                 point / "run/1/model"]) for _ in range(3)]
    for _ in range(5):
        equal(run("umount", point).returncode, 0, "a mount that is looked at")
        run("mount", store, point)
    run("umount", point)
    for p in lookers:
        p.kill()
        p.wait()


def helper(store, point, tmp):
    """mount(8) finds mount.ckptfs in /sbin: a private view of it has one."""
    (tmp / "sbin").mkdir()
    (tmp / "sbin/mount.ckptfs").symlink_to(PROGRAM)
    (tmp / "fstab").write_text(
        f"{store} {point} ckptfs noauto,x-systemd.automount,nofail,_netdev,"
        f"nosuid,nodev,noatime,allow_other,uid=7 0 0\n")
    script = f"""set -e
sbin=$(readlink -f /sbin)
mount -t overlay overlay -o lowerdir={tmp}/sbin:$sbin $sbin
mount -t ckptfs {store} {point}
test $(stat -c %h {point}/run/1) = 3
umount {point}
mount -t ckptfs -o ro,relatime,cache=8 {store} {point}
findmnt -n -o FSTYPE,SOURCE {point}
umount {point}
mount -T {tmp}/fstab {point}
stat -c %u {point}/run/1/model/w.npy
mount -T {tmp}/fstab -a -O no_netdev
umount {point}
mount -t ckptfs -o rw,dev,suid,exec,async,relatime,nomand,user {store} {point}
umount {point}
if mount -f -t ckptfs {tmp}/none {point}; then exit 7; fi
mount -f -t ckptfs {store} {point}
if mountpoint -q {point}; then exit 9; fi
if mount -t ckptfs -o nonsense {store} {point}; then exit 8; fi
"""
    p = subprocess.run(["unshare", "-m", "sh", "-c", script],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(p.returncode, 0, f"mount(8): {p.stderr.decode()}")
    equal(p.stdout.decode().split(), ["fuse.ckptfs", str(store), "7"],
          "what mount(8) mounted")
    check("'nonsense'" in p.stderr.decode(), "its sentence comes through")
    check("none' does not exist" in p.stderr.decode(), "-f looks at the store")
    for argv, word in ((["-N", "/proc/1/ns/mnt", store, point], "nsenter"),
                       (["--status", point], "ckptfs mount")):
        p = subprocess.run([tmp / "sbin/mount.ckptfs", *argv],
                           stderr=subprocess.PIPE)
        equal(p.returncode, 2, f"mount.ckptfs {argv[0]}")
        check(word in one_sentence(p, argv), p.stderr)


def notifies(store, point, tmp):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp / "notify"))
        s.settimeout(10)
        p = subprocess.Popen([PROGRAM, "mount", "-f", store, point],
                             env={"NOTIFY_SOCKET": str(tmp / "notify")})
        equal(s.recv(100), b"READY=1", "systemd is told")
        check("run" in os.listdir(point), "and it is true")
        p.send_signal(signal.SIGTERM)
        equal(s.recv(100), b"STOPPING=1", "and of the end")
        equal(p.wait(10), 0, "a clean end")


def unit(tmp):
    text = (ROOT / "contrib/systemd/ckptfs@.service.in").read_text()
    path = tmp / "ckptfs@.service"
    path.write_text(text.replace("@bindir@", str(pathlib.Path(
        PROGRAM).parent)))
    tool("systemd-analyze", "verify", "--man=no", path, stderr=None)
    p = subprocess.run(["systemd-analyze", "verify", "--man=no", path],
                       stderr=subprocess.PIPE)
    equal([r for r in p.stderr.decode().split("\n") if "ckptfs" in r], [],
          "systemd finds nothing to say of the unit")


def as_nobody(code, *args, groups=()):
    def drop():
        os.setgroups(list(groups))
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    # reports go to stderr: their folder may be closed to others
    env = {k: v for k, v in os.environ.items() if not k.endswith("N_OPTIONS")}
    return subprocess.run([*code, *args], preexec_fn=drop, cwd="/", env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def other_users(store, point, tmp):
    program = for_others(tmp)
    with mounted(store, point):
        p = as_nobody(["ls", point])
        check(p.returncode != 0 and b"ermission" in p.stderr,
              f"closed to others: {p.stdout} {p.stderr}")
    with mounted(store, point, "-o", "allow_other"):
        equal(as_nobody(["cat", point / "run/1/model/w.npy"]).stdout,
              (point / "run/1/model/w.npy").read_bytes(), "open to others")
        for option in ([], ["-l"]):
            p = as_nobody([program, "umount", *option, point])
            check("user 0 mounted it" in one_sentence(p, "another's mount"),
                  p.stderr)
        check(os.path.ismount(point), "it is still there")
    with mounted(store, point, "-o", "allow_other,umask=007"):
        p = as_nobody(["ls", point])
        check(p.returncode != 0, "modes are checked for others")
    # a user's own mount, and what root set for it
    mine = tmp / "mine"
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    p = as_nobody([program, "mount", store, mine])
    if check(p.returncode == 0, f"a user mounts: {p.stderr.decode()}"):
        equal(as_nobody(["ls", mine / "run"]).stdout.split()[0], b"1",
              "and reads")
        p = as_nobody([program, "umount", mine])
        equal(p.returncode, 0, f"and unmounts: {p.stderr.decode()}")
    conf = "/etc/fuse.conf"
    allowed = os.path.exists(conf) and any(
        r.strip() == "user_allow_other" for r in open(conf))
    if not allowed:
        p = as_nobody([program, "mount", "-o", "allow_other", store, mine])
        check("user_allow_other" in one_sentence(p, "allow_other"),
              "root's word is wanted")
    # what the daemon's user may not read (a squashed root's view)
    hidden = store / "checkpoints/run/2"
    os.chmod(hidden, 0o600)
    p = as_nobody([program, "mount", store, mine])
    equal(p.returncode, 0, f"it still mounts: {p.stderr.decode()}")
    names = as_nobody(["ls", mine / "run"]).stdout.split()
    check(b"1" in names and b"2" in names, f"names are shown: {names}")
    p = as_nobody(["ls", mine / "run/2"])
    check(b"ermission denied" in p.stderr, f"EACCES: {p.stderr}")
    equal(as_nobody(["cat", mine / "run/1/model/w.npy"]).returncode, 0,
          "the rest is served")
    as_nobody([program, "umount", mine])
    os.chmod(hidden, 0o644)
    os.chmod(store, 0o700)
    p = as_nobody([program, "mount", store, mine])
    check("ermission denied" in one_sentence(p, "a closed store"), p.stderr)
    os.chmod(store, 0o755)


def main():
    need_fuse()
    need_root()
    need("getfattr", "findmnt", "unshare", "systemd-analyze")
    with folder() as tmp:
        array = np.arange(4000, dtype=np.float32).reshape(40, 100)
        safetensors.numpy.save_file({"w": array}, tmp / "m.safetensors")
        store = new_store(tmp)
        for i in "12":
            run("import", tmp / "m.safetensors", f"{store}:run/{i}")
        point = tmp / "m"
        point.mkdir()
        sentences(store, point)
        options_work(store, point)
        xattrs(store, point, array)
        says_of_itself(store, point)
        before_1970(store, point)
        given_as_store(store, point)
        covers(store, point)
        busy(store, point)
        helper(store, point, tmp)
        notifies(store, point, tmp)
        unit(tmp)
        # /dev/fuse as udev makes it, in a private view
        script = (f"mknod -m 666 {tmp}/fuse c 10 229 && "
                  f"mount --bind {tmp}/fuse /dev/fuse && "
                  f"exec {sys.executable} {__file__} users {tmp}")
        equal(subprocess.run(["unshare", "-m", "sh", "-c", script],
                             timeout=300).returncode, 0, "as other users")
    done()


if sys.argv[1:2] == ["users"]:
    tmp = pathlib.Path(sys.argv[2])
    other_users(tmp / "store", tmp / "m", tmp)
    done()
main()
