# SPDX-License-Identifier: Apache-2.0
"""A 4 GiB tensor: import, cat and a mounted read, each in under 300 MiB."""
import hashlib
import json
import os
import shutil
import subprocess

from ckptest import *

ROWS, COLUMNS = 32768, 65536  # bf16: 4 GiB
LIMIT = 300 << 20


def write_file(path):
    """The same 1 MiB pattern, each row band marked, so no two tiles agree."""
    header = json.dumps({"big": {
        "dtype": "BF16", "shape": [ROWS, COLUMNS],
        "data_offsets": [0, ROWS * COLUMNS * 2]}}).encode()
    header += b" " * (-len(header) % 8)
    digest = hashlib.sha256()
    row = bytearray(os.urandom(COLUMNS * 2))
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        for i in range(ROWS):
            row[0:8] = i.to_bytes(8, "little")
            for c in range(1, 16):
                row[c * 8192:c * 8192 + 8] = (i * 16 + c).to_bytes(8,
                                                                   "little")
            digest.update(row)
            f.write(row)
    return digest.hexdigest()


def peak_of(argv, sink):
    """Run, hash the output, peak RSS in bytes of that process alone."""
    p = subprocess.Popen(["/usr/bin/time", "-f", "%M", *argv],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    digest = hashlib.sha256()
    while True:
        data = p.stdout.read(1 << 20)
        if not data:
            break
        if sink:
            digest.update(data)
    err = p.stderr.read().decode().split()
    equal(p.wait(), 0, f"{argv[1]}: {err}")
    return int(err[-1]) << 10, digest.hexdigest()


def daemon_peak(store):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline", "rb").read()
            if b"mount" in line and os.fsencode(str(store)) in line:
                for row in open(f"/proc/{pid}/status"):
                    if row.startswith("VmHWM"):
                        return int(row.split()[1]) << 10
        except OSError:
            pass
    return None


def main():
    need_fuse()
    if not os.path.exists("/usr/bin/time"):
        skip("no /usr/bin/time here")
    base = os.environ.get("TMPDIR", "/tmp")
    if shutil.disk_usage(base).free < 12 << 30:
        skip("less than 12 GiB of disk are free")
    with folder() as tmp:
        file = tmp / "big.safetensors"
        want = write_file(file)
        store = new_store(tmp)
        peak, _ = peak_of([PROGRAM, "import", "-q", file, f"{store}:big"],
                          False)
        check(peak < LIMIT, f"import took {peak >> 20} MiB")
        print(f"import {peak >> 20} MiB")
        file.unlink()
        peak, got = peak_of([PROGRAM, "cat", "--tensor", "big",
                             f"{store}:big"], True)
        equal(got, want, "cat")
        check(peak < LIMIT, f"cat took {peak >> 20} MiB")
        print(f"cat {peak >> 20} MiB")
        with mounted(store) as point:
            digest = hashlib.sha256()
            with open(point / "big/model/big.npy", "rb") as f:
                f.seek(128)
                while data := f.read(1 << 20):
                    digest.update(data)
            equal(digest.hexdigest(), want, "mounted read")
            peak = daemon_peak(store)
            check(peak is not None and peak < LIMIT,
                  f"the daemon took {peak} bytes")
            print(f"daemon {(peak or 0) >> 20} MiB")
    done()


main()
