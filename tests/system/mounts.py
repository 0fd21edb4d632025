# SPDX-License-Identifier: Apache-2.0
"""What tests of the mount share beside ckptest: daemons, tools, waiting."""
import os
import pathlib
import shutil
import subprocess
import time

from ckptest import *


def daemon_of(point):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        if b"mount" in line and os.fsencode(str(point)) in line:
            return int(pid)
    return None


def ended(pid):
    """Gone, or dead and waiting for a parent that looks rarely."""
    try:
        text = open(f"/proc/{pid}/stat").read()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return True
    return text.rsplit(")", 1)[1].split()[0] in "ZX" and threads <= 1


def wait_for(what, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def status(point):
    """The figures of a mount, as numbers."""
    rows = (point / ".ckptfs").read_text().split("\n")
    return {k: int(v) for k, v in (r.split() for r in rows if r)}


def need(*programs):
    """A tool that is missing is a failure: contrib/setup --checks installs
    it."""
    for p in programs:
        if not shutil.which(p):
            check(False, f"{p} is missing: run contrib/setup --checks")
            done()


def need_root():
    if os.geteuid() != 0:
        skip("root is needed")


def tool(*argv, rc=0, stderr=b"", **kw):
    """A real tool: its exit code and (lack of) complaints are checked."""
    p = subprocess.run([a if isinstance(a, bytes) else os.fsencode(str(a))
                        for a in argv], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, **kw)
    said = p.stderr.decode(errors="replace")[:300]
    equal(p.returncode, rc, f"{argv[0]} {argv[1]}: {said}")
    if stderr is not None:
        equal(p.stderr, stderr, f"{argv[0]} complains")
    return p.stdout


def many_tensors(path, count, name="layers.{}.w", width=16):
    """A safetensors file of @count U8 tensors, written by hand."""
    import json
    header = {name.format(i): {"dtype": "U8", "shape": [width],
                               "data_offsets": [i * width, (i + 1) * width]}
              for i in range(count)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for i in range(count):
            f.write(i.to_bytes(width, "little"))
    return path
