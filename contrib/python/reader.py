#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent reader of ckptfs stores, written from FORMAT.md alone.

usage: reader.py list STORE
       reader.py tensors STORE CHECKPOINT      item, name, dtype, shape, bytes,
                                               sha256 of the raw bytes; tabs
       reader.py cat STORE CHECKPOINT ITEM NAME
       reader.py verify STORE [CHECKPOINT]     exit 3 when damage is found

Standard library and NumPy only; zstd cells need the `zstd` program. Slow and
plain on purpose: it is the second opinion on the format.
"""
import hashlib
import json
import os
import pathlib
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile

import numpy as np

CELL = 256 * 1024
PAGE = 4096
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32,
        "I32": 32, "U64": 64, "I64": 64, "F16": 16, "BF16": 16, "F32": 32,
        "F64": 64, "C64": 64, "C128": 128, "F8_E5M2": 8, "F8_E4M3": 8,
        "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "F8_E8M0": 8, "F6_E2M3": 6,
        "F6_E3M2": 6, "F4": 4}
SCHEMA = """\
CREATE TABLE checkpoint(id INTEGER PRIMARY KEY CHECK(id = 1), uuid BLOB NOT NULL, store_uuid BLOB NOT NULL, generation INTEGER NOT NULL, seq INTEGER NOT NULL, step INTEGER, created_ns INTEGER NOT NULL, parent BLOB, saved_as TEXT NOT NULL, metadata TEXT, metrics TEXT, writer TEXT NOT NULL, tile_rule INTEGER NOT NULL, digest TEXT NOT NULL) STRICT
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, separator TEXT NOT NULL, metadata TEXT) STRICT
CREATE TABLE pack(id INTEGER PRIMARY KEY, uuid BLOB NOT NULL UNIQUE) STRICT
CREATE TABLE layout(id INTEGER PRIMARY KEY, spec BLOB NOT NULL UNIQUE) STRICT
CREATE TABLE tensor(id INTEGER PRIMARY KEY, item INTEGER NOT NULL REFERENCES item(id), name BLOB NOT NULL, dtype TEXT NOT NULL, shape BLOB NOT NULL, bytes INTEGER NOT NULL, media_type TEXT, layout INTEGER REFERENCES layout(id), alias_of INTEGER REFERENCES tensor(id), stats BLOB, root BLOB, chunks BLOB, UNIQUE(item, name)) STRICT
"""


class Damage(Exception):
    pass


def need(ok, what):
    if not ok:
        raise Damage(what)


# ---- XXH3-64, seed 0, default secret ----

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
M64 = (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
P64_3, P64_4 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
P64_5 = 0x27D4EB2F165667C5


def u32(b, at=0):
    return int.from_bytes(b[at:at + 4], "little")


def u64(b, at=0):
    return int.from_bytes(b[at:at + 8], "little")


def fold(a, b):
    p = a * b
    return (p & M64) ^ (p >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & M64
    return h ^ h >> 32


def mix16(b, at, secret_at):
    return fold(u64(b, at) ^ u64(SECRET, secret_at),
                u64(b, at + 8) ^ u64(SECRET, secret_at + 8))


def xxh64_avalanche(h):
    h ^= h >> 33
    h = h * P64_2 & M64
    h ^= h >> 29
    h = h * P64_3 & M64
    return h ^ h >> 32


def xxh3_short(b):
    n = len(b)
    if n == 0:
        return xxh64_avalanche(u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        mixed = b[0] << 16 | b[n >> 1] << 24 | b[-1] | n << 8
        return xxh64_avalanche(mixed ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    if n <= 8:
        v = u32(b, n - 4) + (u32(b) << 32)
        h = v ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        rot = lambda x, r: (x << r | x >> 64 - r) & M64
        h ^= rot(h, 49) ^ rot(h, 24)
        h = h * 0x9FB21C651E98DF25 & M64
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & M64
        return h ^ h >> 28
    lo = u64(b) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
    hi = u64(b, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
    swapped = int.from_bytes(lo.to_bytes(8, "little"), "big")
    return avalanche(n + swapped + hi + fold(lo, hi) & M64)


def xxh3_middle(b):
    n = len(b)
    h = n * P64_1 & M64
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += mix16(b, 16 * i, 32 * i)
            h += mix16(b, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(h & M64)
    for i in range(8):
        h += mix16(b, 16 * i, 16 * i)
    h = avalanche(h & M64)
    for i in range(8, n // 16):
        h += mix16(b, 16 * i, 16 * (i - 8) + 3)
    h += mix16(b, n - 16, 136 - 17)
    return avalanche(h & M64)


def xxh3_long(b):
    """Stripes of 64 bytes; 16 stripes a block, as the secret has 192 bytes."""
    n = len(b)
    words = np.frombuffer(SECRET, dtype=np.uint8)
    secret = np.stack([np.frombuffer(words[8 * i:8 * i + 64].tobytes(),
                                     dtype="<u8") for i in range(17)])
    acc = np.array([P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1],
                   dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    s32 = np.uint64(32)
    swap = np.array([1, 0, 3, 2, 5, 4, 7, 6])

    def stripes(data, keys):
        keyed = data ^ keys
        return data[:, swap] + (keyed & low) * (keyed >> s32)

    per_block = 16
    blocks = (n - 1) // (64 * per_block)
    data = np.frombuffer(b[:blocks * 1024], dtype="<u8").reshape(
        blocks, per_block, 8)
    scramble = np.frombuffer(SECRET[128:192], dtype="<u8")
    with np.errstate(over="ignore"):
        for block in data:
            acc = acc + stripes(block, secret[:16]).sum(
                axis=0, dtype=np.uint64)
            acc = ((acc ^ acc >> np.uint64(47)) ^ scramble) * np.uint64(P32_1)
        rest = (n - 1 - 1024 * blocks) // 64
        tail = np.frombuffer(b[1024 * blocks:1024 * blocks + 64 * rest],
                             dtype="<u8").reshape(rest, 8)
        acc = acc + stripes(tail, secret[:rest]).sum(axis=0, dtype=np.uint64)
        last = np.frombuffer(b[n - 64:], dtype="<u8").reshape(1, 8)
        end = np.frombuffer(SECRET[121:185], dtype="<u8").reshape(1, 8)
        acc = acc + stripes(last, end)[0]
    h = n * P64_1 & M64
    acc = [int(x) for x in acc]
    for i in range(4):
        h += fold(acc[2 * i] ^ u64(SECRET, 11 + 16 * i),
                  acc[2 * i + 1] ^ u64(SECRET, 19 + 16 * i))
    return avalanche(h & M64)


def xxh3(b):
    b = bytes(b)
    if len(b) <= 16:
        return xxh3_short(b)
    return xxh3_middle(b) if len(b) <= 240 else xxh3_long(b)


# ---- tile grid, rule 1 ----

def product(values):
    p = 1
    for v in values:
        p *= v
    return p


def storage(dtype, shape):
    """Shape and item bytes in storage space."""
    bits = BITS[dtype]
    if bits % 8 == 0:
        return list(shape), bits // 8
    if shape and shape[-1] * bits % 8 == 0:
        return list(shape[:-1]) + [shape[-1] * bits // 8], 1
    return [product(shape) * bits // 8], 1


def tile_shape(shape, item):
    n = product(shape) * item
    ext = list(shape)
    if not shape or n <= 256 * 1024:
        return ext
    limit = min(max(n // 256, 256 * 1024), 8 << 20)
    k = [0] * len(shape)
    run = [product(shape[d + 1:]) * item for d in range(len(shape))]
    wide = [d for d in range(1, len(shape))
            if shape[d] > 1 and shape[d] * run[d] >= 2048]
    c, cols = (wide[-1] if wide else None), 0
    half = lambda d: -(-shape[d] // 2 ** (k[d] + 1))
    while product(ext) * item > limit:
        if (c is not None and cols < 3 and ext[c] > 1
                and half(c) * run[c] >= 1024):
            d, cols = c, cols + 1
        else:
            d = next((i for i in range(len(shape)) if ext[i] > 1), None)
            if d is None:
                break
        ext[d] = half(d)
        k[d] += 1
    return ext


class Grid:
    def __init__(self, dtype, shape, is_file):
        self.shape, self.item = storage(dtype, shape)
        self.bytes = product(self.shape) * self.item
        self.tile = ([min(self.bytes, 1 << 20)] if is_file
                     else tile_shape(self.shape, self.item))
        self.counts = ([-(-s // t) for s, t in zip(self.shape, self.tile)]
                       if self.bytes else [])
        self.count = product(self.counts) if self.bytes else 0

    def box(self, index):
        at = []
        for n in reversed(self.counts):
            at.append(index % n)
            index //= n
        origin = [a * t for a, t in zip(reversed(at), self.tile)]
        extent = [min(t, s - o)
                  for t, s, o in zip(self.tile, self.shape, origin)]
        return origin, extent


def meet(a, b):
    origin = [max(x, y) for x, y in zip(a[0], b[0])]
    end = [min(x + m, y + n) for x, m, y, n in zip(*a, *b)]
    return origin, [max(0, e - o) for o, e in zip(origin, end)]


# ---- packs ----

class Pack:
    def __init__(self, store, uuid):
        text = str(uuid_text(uuid))
        self.path = store / "packs" / text[:2] / f"{text}.pack"
        self.name = f"packs/{text[:2]}/{text}.pack"
        need(self.path.exists(), f"pack {self.name} is missing")
        self.file = open(self.path, "rb")
        self.size = os.fstat(self.file.fileno()).st_size
        head = self.read(0, 64)
        need(head[:8] == b"ckptPACK", f"{self.name}: magic")
        need(u64(head, 56) == xxh3(head[:56]), f"{self.name}: header")
        need(u32(head, 12) == 0, f"{self.name}: newer features")
        need(head[16:32] == uuid, f"{self.name}: uuid")

    def read(self, off, n):
        data = os.pread(self.file.fileno(), n, off)
        need(len(data) == n, f"{self.name}: ends before offset {off + n}")
        return data

    def chunk(self, off, head_len, digest=None):
        head = self.read(off, head_len)
        where = f"{self.name} offset {off}"
        need(head[:8] == b"ckptREC1", f"{where}: magic")
        need(u32(head, 8) == head_len, f"{where}: header length")
        need(u64(head, head_len - 8) == xxh3(head[:-8]), f"{where}: header")
        need(u32(head, 20) == 0, f"{where}: newer features")
        raw_len, stored, cells = u64(head, 32), u64(head, 40), u32(head, 28)
        need(cells == -(-raw_len // CELL), f"{where}: cells")
        need(digest is None or head[48:80] == digest, f"{where}: digest")
        at, out = off + head_len, []
        for i in range(cells):
            n, coding, check = struct.unpack_from("<IIQ", head, 80 + 16 * i)
            data = self.read(at, n)
            need(xxh3(data) == check, f"{where}: cell {i}")
            want = min(CELL, raw_len - i * CELL)
            if coding == 1:
                data = unzstd(data)
            need(len(data) == want, f"{where}: cell {i} has {len(data)}")
            out.append(data)
            at += n
        need(at == off + head_len + stored, f"{where}: stored length")
        raw = b"".join(out)
        need(hashlib.sha256(raw).digest() == head[48:80], f"{where}: SHA-256")
        return raw

    def trailer(self):
        foot = self.read(self.size - 64, 64)
        need(foot[:8] == b"ckptFOOT", f"{self.name}: footer")
        need(u64(foot, 56) == xxh3(foot[:56]), f"{self.name}: footer sum")
        need(foot[32:48] == self.read(16, 16), f"{self.name}: footer uuid")
        count, off = u64(foot, 8), u64(foot, 16)
        need(off + 64 * count + 64 == self.size, f"{self.name}: table")
        table = self.read(off, 64 * count)
        need(xxh3(table) == u64(foot, 24), f"{self.name}: table sum")
        return [struct.unpack_from("<32sQIHHQQ", table, 64 * i)
                for i in range(count)]


def unzstd(data):
    try:
        p = subprocess.run(["zstd", "-dcq"], input=data,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        sys.exit("reader.py: zstd cells need the `zstd` program")
    need(p.returncode == 0, "zstd: " + p.stderr.decode())
    return p.stdout


def uuid_text(b):
    h = b.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


# ---- manifests ----

class Tensor:
    pass


class Checkpoint:
    def __init__(self, store, name):
        self.store, self.name = store, name
        path = store / "checkpoints" / name
        need(path.is_file(), f"there is no checkpoint {name}")
        self.check_pages(path.read_bytes())
        uri = f"file:{escape_uri(path)}?mode=ro&immutable=1"
        self.db = sqlite3.connect(uri, uri=True)
        self.db.text_factory = lambda b: b.decode("utf-8")
        self.load()

    def check_pages(self, data):
        need(len(data) > 0 and len(data) % PAGE == 0, f"{self.name}: size")
        need(data[20] == 8, f"{self.name}: reserved bytes")
        for i in range(0, len(data), PAGE):
            number = struct.pack("<I", i // PAGE + 1)
            need(u64(data, i + PAGE - 8) ==
                 xxh3(number + data[i:i + PAGE - 8]),
                 f"{self.name}: page {i // PAGE + 1}")

    def load(self):
        q = self.db.execute
        need(q("PRAGMA application_id").fetchone()[0] == 0x636B7074,
             f"{self.name}: application_id")
        need(q("PRAGMA user_version").fetchone()[0] == 1,
             f"{self.name}: version")
        have = [r[0] for r in q("SELECT sql FROM sqlite_schema WHERE sql IS "
                                "NOT NULL ORDER BY rowid")]
        need(have == SCHEMA.splitlines(), f"{self.name}: schema")
        self.facts = q("SELECT uuid, generation, seq, step, saved_as, "
                       "tile_rule, digest FROM checkpoint").fetchone()
        need(self.facts[5] == 1 and self.facts[6] == "sha256",
             f"{self.name}: tile rule or digest")
        self.items = [r for r in q("SELECT name, kind, separator, metadata "
                                   "FROM item ORDER BY id")]
        self.packs = [r[0] for r in q("SELECT uuid FROM pack ORDER BY id")]
        self.layouts = [r[0] for r in q("SELECT spec FROM layout "
                                        "ORDER BY id")]
        self.tensors = [self.tensor(r) for r in q(
            "SELECT item, name, dtype, shape, bytes, media_type, layout, "
            "alias_of, root, chunks FROM tensor ORDER BY id")]

    def tensor(self, row):
        t = Tensor()
        (t.item, t.name, t.dtype, shape, t.bytes, t.media_type, layout,
         t.alias_of, t.root, chunks) = row
        t.shape = list(struct.unpack(f"<{len(shape) // 8}Q", shape))
        t.grid = Grid(t.dtype, t.shape, t.media_type is not None)
        need(t.grid.bytes == t.bytes, f"{t.name!r}: bytes")
        t.shards = (None if layout is None
                    else self.layout(self.layouts[layout]))
        t.chunks = [struct.unpack_from("<QIIQQIIHHI32s", chunks, i)
                    for i in range(0, len(chunks or b""), 80)]
        return t

    @staticmethod
    def layout(spec):
        version, ndim, world, count = struct.unpack_from("<4I", spec)
        need(version == 1, "layout version")
        each = 16 + 16 * ndim
        boxes = []
        for i in range(count):
            dims = struct.unpack_from(f"<{2 * ndim}Q", spec,
                                      16 + each * i + 16)
            boxes.append((list(dims[:ndim]), list(dims[ndim:])))
        need(len(spec) == 16 + each * count, "layout length")
        return boxes

    def read(self, t, packs):
        """The raw bytes of tensor @t, put together from its chunks."""
        if t.alias_of is not None:
            t = self.tensors[t.alias_of]
        g = t.grid
        out = np.zeros(g.shape + [g.item], dtype=np.uint8)
        seen = np.zeros(g.shape, dtype=np.uint8)
        for (tile, shard, pack, off, stored, raw_len, head_len, codec, r0,
             r1, digest) in t.chunks:
            uuid = self.packs[pack]
            if uuid not in packs:
                packs[uuid] = Pack(self.store, uuid)
            raw = packs[uuid].chunk(off, head_len, digest)
            box = g.box(tile)
            if shard != 0xFFFFFFFF:
                box = meet(box, t.shards[shard])
            need(len(raw) == raw_len == product(box[1]) * g.item,
                 f"{t.name!r}: chunk of tile {tile}")
            where = tuple(slice(o, o + e) for o, e in zip(*box))
            out[where] = np.frombuffer(raw, dtype=np.uint8).reshape(
                box[1] + [g.item])
            seen[where] += 1
        need(t.bytes == 0 or bool((seen == 1).all()),
             f"{t.name!r}: not covered exactly once")
        return out.tobytes() if t.bytes else b""

    def root(self, t):
        bits = BITS[t.dtype]
        h = hashlib.sha256(b"ckptfs-root-1" + struct.pack(
            f"<III{len(t.shape)}Q", 1, bits, len(t.shape), *t.shape))
        for c in t.chunks:
            need(c[1] == 0xFFFFFFFF, f"{t.name!r}: root over fragments")
            h.update(c[10])
        return h.digest()


def escape_uri(path):
    return re.sub(r"[%?#]", lambda m: "%%%02x" % ord(m.group()),
                  str(pathlib.Path(path).resolve()))


def checkpoints(store):
    top = store / "checkpoints"
    return sorted(str(p.relative_to(top)) for p in top.rglob("*")
                  if p.is_file() and not p.is_symlink())


def quote(name):
    text = name.decode("utf-8") if isinstance(name, bytes) else name
    for a, b in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"),
                 ("\0", "\\0")):
        text = text.replace(a, b)
    return text


def cmd_list(store):
    for name in checkpoints(store):
        try:
            c = Checkpoint(store, name)
            print(name, uuid_text(c.facts[0]), c.facts[3],
                  len(c.tensors), sep="\t")
        except (Damage, sqlite3.Error) as e:
            print(name, "damaged", e, sep="\t")


def cmd_tensors(store, name):
    c, packs = Checkpoint(store, name), {}
    for t in c.tensors:
        digest = hashlib.sha256(c.read(t, packs)).hexdigest()
        shape = "[" + ",".join(map(str, t.shape)) + "]"
        line = "\t".join([quote(c.items[t.item][0]), quote(t.name), t.dtype,
                          shape, str(t.bytes), digest])
        sys.stdout.buffer.write(line.encode() + b"\n")


def cmd_cat(store, name, item, tensor):
    c = Checkpoint(store, name)
    for t in c.tensors:
        if c.items[t.item][0] == item and t.name == tensor.encode():
            sys.stdout.buffer.write(c.read(t, {}))
            return
    sys.exit(f"reader.py: {name} has no {item}/{tensor}")


def cmd_verify(store, *names):
    bad, packs = 0, {}
    for name in names or checkpoints(store):
        try:
            c = Checkpoint(store, name)
            need(c.db.execute("PRAGMA integrity_check").fetchone()[0] == "ok",
                 f"{name}: integrity_check")
        except (Damage, sqlite3.Error) as e:
            print("damage:", e)
            bad += 1
            continue
        for t in c.tensors:
            try:
                c.read(t, packs)
                source = (t if t.alias_of is None
                          else c.tensors[t.alias_of])
                need(t.root is None or c.root(source) == t.root,
                     f"{t.name!r}: root")
            except Damage as e:
                print(f"damage: {name} {c.items[t.item][0]}/"
                      f"{quote(t.name)}: {e}")
                bad += 1
    if not names:
        for path in sorted(store.glob("packs/*/*.pack")):
            try:
                p = Pack(store, bytes.fromhex(path.stem.replace("-", "")))
                for digest, off, head_len, *_ in p.trailer():
                    p.chunk(off, head_len, digest)
            except Damage as e:
                print("damage:", e)
                bad += 1
    print("no damage" if not bad else f"{bad} damaged")
    sys.exit(3 if bad else 0)


def main():
    commands = {"list": (cmd_list, 1, 1), "tensors": (cmd_tensors, 2, 2),
                "cat": (cmd_cat, 4, 4), "verify": (cmd_verify, 1, 99)}
    args = sys.argv[1:]
    if not args or args[0] not in commands or not (
            commands[args[0]][1] <= len(args) - 1 <= commands[args[0]][2]):
        print(__doc__.strip())
        sys.exit(2)
    store = pathlib.Path(args[1])
    if not (store / "ckptfs.json").exists():
        sys.exit(f"reader.py: '{store}' is not a ckptfs store")
    config = json.loads((store / "ckptfs.json").read_text())
    if config.get("incompat"):
        sys.exit(f"reader.py: needs {config['incompat']}")
    try:
        commands[args[0]][0](store, *args[2:])
    except Damage as e:
        print(f"reader.py: {e}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
