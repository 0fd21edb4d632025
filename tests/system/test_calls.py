# SPDX-License-Identifier: Apache-2.0
"""A file system that lacks what is optional (mount-13): every such call has
another way. strace(1) makes them fail."""
import io
import os
import subprocess
import zipfile

from ckptest import *
from mounts import need

import numpy as np
import safetensors.numpy

# leaks cannot be looked for under a tracer
ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")


def without(tmp, trace, *args):
    """The program under strace; the log of what it injected."""
    log = tmp / "log"
    p = subprocess.run(["strace", "-f", "-qq", "-o", log, *trace, PROGRAM,
                        *map(str, args)], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env=ENV)
    equal((p.returncode, p.stderr), (0, b""), f"{args[0]} without {trace}")
    return [r for r in log.read_text().split("\n") if "INJECTED" in r]


def main():
    need("strace")
    if subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"],
                      stderr=subprocess.PIPE).returncode != 0:
        skip("nothing may be traced here")
    calls = "flock,fallocate,copy_file_range,sync_file_range,fadvise64"
    with folder() as tmp:
        # a pack of more than what is written out at a time
        w = np.arange(20 << 20, dtype=np.uint32)
        safetensors.numpy.save_file({"w": w}, tmp / "m.safetensors")
        for error in ("EOPNOTSUPP", "ENOSYS", "EINVAL"):
            trace = ["-e", f"trace={calls}", "-e",
                     f"inject={calls}:error={error}"]
            store = tmp / error
            without(tmp, trace, "init", store)
            met = without(tmp, trace, "import", "-q", tmp / "m.safetensors",
                          f"{store}:run/1")
            for call in ("flock", "sync_file_range"):
                check(any(f" {call}(" in r for r in met), f"{call}: {met}")
            without(tmp, trace, "cp", f"{store}:run/1", f"{store}:run/2")
            without(tmp, trace, "export", f"{store}:run/2", tmp / f"{error}.d")
            equal(sha(np.load(tmp / f"{error}.d/model/w.npy").tobytes()),
                  sha(w.tobytes()), f"{error}: bytes")
            check(b"no damage" in run("check", "--full", store).stdout,
                  "check")
        if os.environ.get("CKPTFS_NPZ", "1") == "1":
            no_tmpfile(tmp)
    done()


def no_tmpfile(tmp):
    """O_TMPFILE: what an .npz unpacks to then has a name for a moment."""
    a = np.arange(2 << 20, dtype=np.uint32)
    out = io.BytesIO()
    np.save(out, a)
    with zipfile.ZipFile(tmp / "a.npz", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.npy", out.getvalue())
    spool = ENV["TMPDIR"] = str(tmp / "spool")
    os.mkdir(spool)
    store = new_store(tmp)
    met = without(tmp, ["-P", spool, "-e", "trace=openat", "-e",
                        "inject=openat:error=EOPNOTSUPP"], "import", "-q",
                  tmp / "a.npz", f"{store}:a")
    check(len(met) == 1 and "O_TMPFILE" in met[0], f"O_TMPFILE: {met}")
    equal(sha(run("cat", "--tensor", "a", f"{store}:a").stdout),
          sha(a.tobytes()), "bytes without O_TMPFILE")
    equal(os.listdir(spool), [], "no temporary file is left")


main()
