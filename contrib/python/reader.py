#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent reader of ckptfs stores, written from FORMAT.md alone.

usage: reader.py list STORE
       reader.py tensors STORE CHECKPOINT      item, name, dtype, shape, bytes,
                                               sha256 of the raw bytes; tabs
       reader.py cat STORE CHECKPOINT ITEM NAME
       reader.py verify STORE [CHECKPOINT...]  all of it, when none is named

NAME is a tensor's own name, or as `tensors` prints it (\\0 for NUL). Exit: 0
done, 1 failed, 2 usage, 3 damage.

Standard library and NumPy only; zstd cells need Python's own zstd module
(3.14), the zstandard package or the `zstd` program. Plain on purpose: it is
the second opinion on the format, so it shares no code or table with the first.
Believes no length it reads: what breaks a rule of FORMAT.md is damage.
"""
import collections
import errno
import hashlib
import json
import os
import pathlib
import re
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile

import numpy as np

from xxh3 import u32, u64, xxh3

CELL = 256 * 1024
PAGE = 4096
CHUNK_MAX = 8 << 20
HEAD_MAX = 1 << 20
RAW_MAX = 1 << 40
PACK_MAX = 1 << 40
WHOLE = 0xFFFFFFFF
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
    """Bytes that are not what the format says."""


class Newer(Exception):
    """A mark of a later version."""


class Missing(Exception):
    """There is no such checkpoint, item or tensor."""


def need(ok, what):
    if not ok:
        raise Damage(what)


def known(ok, what):
    if not ok:
        raise Newer(f"{what}: a newer program is needed")


# ---- tile grid, rule 1 ----

def product(values):
    p = 1
    for v in values:
        p *= v
    return p


def storage(dtype, shape):
    """Shape and item bytes in storage space."""
    need(dtype in BITS, f"dtype {dtype!r}")
    bits = BITS[dtype]
    need(len(shape) <= 64 and product(shape) * bits % 8 == 0 and
         product(shape) * bits // 8 < 1 << 63, f"{dtype} of shape {shape}")
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


# ---- zstd ----

def frame_facts(data):
    """Length of the zstd frame that begins @data, and the raw length it
    claims, or None (RFC 8878)."""
    need(data[:4] == b"\x28\xb5\x2f\xfd" and len(data) > 5, "no zstd frame")
    flags = data[4]
    need(flags & 3 == 0, "a zstd frame with a dictionary")
    single, at = flags >> 5 & 1, 5
    at += 1 - single
    size = (1 if single else 0, 2, 4, 8)[flags >> 6]
    raw = None
    if size:
        raw = int.from_bytes(data[at:at + size], "little")
        raw += 256 if size == 2 else 0
    at += size
    last = 0
    while not last:
        need(at + 3 <= len(data), "a zstd frame that is cut short")
        block = int.from_bytes(data[at:at + 3], "little")
        last, kind = block & 1, block >> 1 & 3
        at += 3 + (1 if kind == 1 else block >> 3)
    return at + (4 if flags & 4 else 0), raw


def unzstd_program(data, want):
    with tempfile.TemporaryFile() as source:
        source.write(data)
        source.seek(0)
        try:
            p = subprocess.Popen(["zstd", "-dcq"], stdin=source,
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            sys.exit("reader.py: a cell is coded with zstd: install the "
                     "`zstd` program or Python's zstandard")
        with p:
            out = p.stdout.read(want + 1)
            if len(out) > want:
                p.kill()
    need(p.returncode == 0 or len(out) > want, "zstd cannot decode it")
    return out


def unzstd_module():
    """decode(data, want) of what Python has, or None."""
    try:
        from compression import zstd
        return lambda data, want: zstd.ZstdDecompressor().decompress(
            data, want + 1), zstd.ZstdError
    except ImportError:
        pass
    try:
        import zstandard
        return lambda data, want: zstandard.ZstdDecompressor().decompress(
            data, max_output_size=want), zstandard.ZstdError
    except ImportError:
        return None


MODULE = unzstd_module()


def unzstd(data, want):
    length, raw = frame_facts(data)
    need(length == len(data), "not one zstd frame")
    need(raw in (None, want), "a zstd frame of another length")
    if not MODULE:
        return unzstd_program(data, want)
    try:
        return MODULE[0](data, want)
    except MODULE[1] as e:
        raise Damage(f"zstd: {e}")


# ---- byte planes ----

def plane(mode, data, n):
    if mode == 1:
        data = unzstd(data, n)
    elif mode == 2:
        need(len(data) == 1, "a plane of equal bytes")
        data = data * n
    else:
        need(mode == 0, f"mode {mode} of a plane")
    need(len(data) == n, "length of a plane")
    return np.frombuffer(data, dtype=np.uint8)


def join_planes(data, want):
    """The @want raw bytes of a cell of coding 2."""
    width = data[0]
    at = 4 + 4 * width
    need(width in (1, 2, 4, 8) and len(data) >= at and want % width == 0 and
         data[1] <= (width > 1) and data[2:4] == bytes(2), "header of planes")
    n = want // width
    out = np.empty((n, width), dtype=np.uint8)
    for k in range(width):
        entry = u32(data, 4 + 4 * k)
        end = at + entry % (1 << 24)
        need(end <= len(data), f"plane {k} is cut short")
        out[:, k] = plane(entry >> 24, data[at:end], n)
        at = end
    need(at == len(data), "bytes behind planes")
    if data[1]:
        bits = 8 * width
        v = out.view(f"<u{width}")
        v[:] = v >> v.dtype.type(1) | v << v.dtype.type(bits - 1)
    return out.tobytes()


# ---- packs ----

def uuid_text(b):
    h = b.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


Record = collections.namedtuple(
    "Record", "off head_len kind codec raw_len stored_len digest cells")
Listed = collections.namedtuple(
    "Listed", "digest off head_len kind codec stored_len raw_len")
Entry = collections.namedtuple(
    "Entry", "tile shard pack off stored_len raw_len head_len codec digest")


class Pack:
    def __init__(self, store, uuid):
        text = uuid_text(uuid)
        self.uuid = uuid
        self.name = f"packs/{text[:2]}/{text}.pack"
        self.proved = set()  # records whose bytes were found right
        try:
            self.fd = os.open(store / self.name, os.O_RDONLY | os.O_NOFOLLOW |
                              os.O_NONBLOCK)
        except FileNotFoundError:
            raise Damage(f"{self.name} is missing")
        except OSError as e:
            need(e.errno not in (errno.ELOOP, errno.ENOTDIR),
                 f"{self.name} is no file")
            raise
        info = os.fstat(self.fd)
        need(stat.S_ISREG(info.st_mode), f"{self.name} is no file")
        self.size = info.st_size
        need(self.size <= PACK_MAX, f"{self.name}: too large")
        head = self.read(0, 64)
        need(head[:8] == b"ckptPACK", f"{self.name}: magic")
        need(u64(head, 56) == xxh3(head[:56]), f"{self.name}: header")
        known(u32(head, 12) == 0, f"{self.name}: incompat flags")
        need(head[16:32] == uuid, f"{self.name}: uuid")
        need(head[48:56] == bytes(8), f"{self.name}: reserved bytes")

    def close(self):
        os.close(self.fd)

    def read(self, off, n):
        need(off + n <= self.size, f"{self.name}: ends before {off + n}")
        data = os.pread(self.fd, n, off)
        need(len(data) == n, f"{self.name}: ends before {off + n}")
        return data

    def head(self, off, head_len):
        where = f"{self.name} offset {off}"
        need(off >= 64 and off % 8 == 0, f"{where}: offset")
        need(96 < head_len <= HEAD_MAX and head_len % 8 == 0,
             f"{where}: header length")
        b = self.read(off, head_len)
        need(b[:8] == b"ckptREC1", f"{where}: magic")
        need(u32(b, 8) == head_len, f"{where}: header length")
        need(u64(b, head_len - 8) == xxh3(b[:-8]), f"{where}: header")
        (kind, codec, _, incompat, alg, digest_len, count, raw_len,
         stored_len) = struct.unpack_from("<HHIIHHIQQ", b, 12)
        known(incompat == 0 and codec <= 2 and alg == 1,
              f"{where}: incompat flags, codec or digest")
        need(kind in (1, 2) and digest_len == 32, f"{where}: kind or digest")
        need(0 < raw_len <= (CHUNK_MAX if kind == 1 else RAW_MAX),
             f"{where}: raw length")
        need(count == -(-raw_len // CELL) and
             80 + 16 * count + 8 <= head_len, f"{where}: cells")
        cells = list(struct.iter_unpack("<IIQ", b[80:80 + 16 * count]))
        for i, (n, coding, _) in enumerate(cells):
            raw = min(CELL, raw_len - i * CELL)
            known(coding <= 3, f"{where}: coding of cell {i}")
            need(n == raw if coding == 0 else
                 n == 0 and raw >= 8 if coding == 3 else 0 < n < raw,
                 f"{where}: length of cell {i}")
            need(coding == 0 or codec == 2 or coding == codec,
                 f"{where}: coding of cell {i}")
        need(sum(c[0] for c in cells) == stored_len,
             f"{where}: stored length")
        need(off + head_len + stored_len <= self.size,
             f"{where}: the payload is cut short")
        self.tlvs(b[80 + 16 * count:-8], where)
        return Record(off, head_len, kind, codec, raw_len, stored_len,
                      b[48:80], cells)

    @staticmethod
    def tlvs(b, where):
        at = 0
        while at < len(b):
            body = int.from_bytes(b[at + 2:at + 4], "little")
            end = at + (4 + body + 7) // 8 * 8
            need(end <= len(b) and not any(b[at + 4 + body:end]),
                 f"{where}: TLVs")
            at = end

    def cell(self, record, at, i):
        where = f"{self.name} offset {record.off}, cell {i}"
        n, coding, check = record.cells[i]
        want = min(CELL, record.raw_len - i * CELL)
        if coding == 3:
            return (check.to_bytes(8, "little") * (want // 8 + 1))[:want]
        data = self.read(at, n)
        need(xxh3(data) == check, f"{where}: checksum")
        try:
            if coding == 1:
                data = unzstd(data, want)
            elif coding == 2:
                data = join_planes(data, want)
        except Damage as e:
            raise Damage(f"{where}: {e}")
        need(len(data) == want, f"{where}: raw length")
        return data

    def raw(self, record):
        """Raw bytes of @record, everything verified, cell by cell."""
        at, sha = record.off + record.head_len, hashlib.sha256()
        for i in range(len(record.cells)):
            data = self.cell(record, at, i)
            at += record.cells[i][0]
            sha.update(data)
            yield data
        need(sha.digest() == record.digest,
             f"{self.name} offset {record.off}: SHA-256")
        self.proved.add(record.off)

    def listed(self):
        """Entries of the table, by offset, and where the table begins."""
        need(self.size >= 128, f"{self.name}: truncated")
        foot = self.read(self.size - 64, 64)
        need(foot[:8] == b"ckptFOOT", f"{self.name}: no footer: truncated?")
        need(u64(foot, 56) == xxh3(foot[:56]), f"{self.name}: footer")
        need(foot[32:48] == self.uuid and foot[48:56] == bytes(8),
             f"{self.name}: footer's uuid or reserved bytes")
        count, off = u64(foot, 8), u64(foot, 16)
        need(count <= 1 << 24 and off >= 64 and off % 8 == 0 and
             off + 64 * count + 64 == self.size, f"{self.name}: table")
        table = self.read(off, 64 * count)
        need(xxh3(table) == u64(foot, 24), f"{self.name}: table's checksum")
        entries = [Listed(*e) for e in struct.iter_unpack("<32sQIHHQQ", table)]
        need(all((a.digest, a.off) < (b.digest, b.off)
                 for a, b in zip(entries, entries[1:])),
             f"{self.name}: order of the table")
        return sorted(entries, key=lambda e: e.off), off

    def verify(self):
        """Every byte: records as the table says, zeros between them."""
        at = 64
        entries, table = self.listed()
        for e in entries:
            r = self.head(e.off, e.head_len)
            need((r.digest, r.kind, r.codec, r.stored_len, r.raw_len) ==
                 (e.digest, e.kind, e.codec, e.stored_len, e.raw_len),
                 f"{self.name} offset {e.off}: the table says otherwise")
            align = 4096 if r.stored_len >= 65536 else 8
            payload = e.off + e.head_len
            need(payload == -(-(at + e.head_len) // align) * align,
                 f"{self.name} offset {e.off}: place")
            self.gap(at, e.off)
            if e.off not in self.proved:
                collections.deque(self.raw(r), maxlen=0)
            at = payload + e.stored_len
        need(table == -(-at // 8) * 8, f"{self.name}: place of the table")
        self.gap(at, table)

    def gap(self, at, end):
        need(at <= end and not any(self.read(at, end - at)),
             f"{self.name} offset {at}: bytes between records")


class Packs(dict):
    """Open packs of a store, by uuid."""

    def __init__(self, store):
        self.store = store

    def __missing__(self, uuid):
        if len(self) >= 64:
            self.pop(next(iter(self))).close()
        self[uuid] = Pack(self.store, uuid)
        return self[uuid]


# ---- names ----

def component_ok(part):
    return (0 < len(part) <= 255 and part[:1] not in (b".", b"@") and
            part not in (b"latest", b"newest", b"README.txt") and
            not any(c < 32 or c in b"\x7f/" for c in part) and utf8_ok(part))


def utf8_ok(b):
    try:
        b.decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False


def checkpoint_name_ok(name):
    raw = os.fsencode(name)
    return len(raw) <= 1024 and all(map(component_ok, raw.split(b"/")))


def item_name_ok(name, kind):
    raw = name.encode()
    if kind == "origin" and raw[:1] == b"@":
        raw = raw[1:]
    return (component_ok(raw) and len(name.encode()) <= 200 and
            name != "checkpoint.json")


# ---- manifests ----

def json_object(text, what):
    def pairs(found):
        need(len(dict(found)) == len(found), f"{what}: a key twice")
        return dict(found)

    def constant(text):
        raise ValueError(text)  # NaN and Infinity are not JSON's
    try:
        value = json.loads(text, object_pairs_hook=pairs,
                           parse_constant=constant)
    except (ValueError, RecursionError) as e:
        raise Damage(f"{what} is no JSON: {e}")
    need(isinstance(value, dict), f"{what} is no JSON object")
    return value


def typed(row, types, what):
    """@types: i, t, b; capitals may be NULL."""
    kinds = {"i": int, "t": str, "b": bytes}
    for value, t in zip(row, types):
        need(isinstance(value, kinds[t.lower()]) or
             (value is None and t.isupper()), f"{what}: a column's type")
    need(not any(isinstance(v, str) and "\0" in v for v in row),
         f"{what}: NUL in a text")


class Tensor:
    pass


class Checkpoint:
    def __init__(self, store, name):
        if not checkpoint_name_ok(name):
            raise Missing(f"{name!r} cannot be a checkpoint's name")
        self.name = name
        path = store / "checkpoints" / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise Missing(f"there is no checkpoint {name}")
        with os.fdopen(fd, "rb") as f:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Missing(f"{name} is no checkpoint")
            self.check_pages(f.read())
        self.open(path)

    def need(self, ok, what):
        need(ok, f"manifest {self.name}: {what}")

    def check_pages(self, data):
        self.need(len(data) > 0 and len(data) % PAGE == 0, "size")
        for i in range(0, len(data), PAGE):
            number = struct.pack("<I", i // PAGE + 1)
            self.need(u64(data, i + PAGE - 8) ==
                      xxh3(number + data[i:i + PAGE - 8]),
                      f"page {i // PAGE + 1}")
        pages, encoding, version, application = (
            int.from_bytes(data[at:at + 4], "big") for at in (28, 56, 60, 68))
        self.need(data[:16] == b"SQLite format 3\0" and
                  data[16:21] == b"\x10\x00\x01\x01\x08" and
                  pages == len(data) // PAGE and encoding == 1 and
                  application == 0x636B7074, "SQLite's header")
        known(version <= 1, f"manifest {self.name}: version {version}")
        self.need(version == 1, "version")

    def open(self, path):
        uri = re.sub(r"[%?#]", lambda m: "%%%02x" % ord(m.group()),
                     str(path.resolve()))
        self.db = sqlite3.connect(f"file:{uri}?mode=ro&immutable=1", uri=True)
        try:
            self.db.execute("PRAGMA trusted_schema=OFF")
            self.db.execute("PRAGMA cell_size_check=ON")
            self.load()
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as e:
            raise Damage(f"manifest {self.name}: {e}")

    def rows(self, table, columns, types):
        """All rows; ids are 0, 1, 2, ..."""
        rows = self.db.execute(
            f"SELECT id, {columns} FROM {table} ORDER BY id").fetchall()
        for i, row in enumerate(rows):
            typed(row, "i" + types, f"manifest {self.name}: {table} {i}")
            self.need(row[0] == i, f"ids of {table}")
        return [row[1:] for row in rows]

    def load(self):
        tables = ("checkpoint", "item", "pack", "layout", "tensor")
        want = []
        for table, sql in zip(tables, SCHEMA.splitlines()):
            want.append(("table", table, table, sql))
            if table != "checkpoint":
                want.append(("index", f"sqlite_autoindex_{table}_1", table,
                             None))
        self.need(self.db.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema "
            "ORDER BY rowid").fetchall() == want, "schema")
        self.load_facts()
        self.items = self.rows("item", "name, kind, separator, metadata",
                               "tttT")
        for name, kind, separator, metadata in self.items:
            self.need(kind in ("tensors", "files", "origin") and
                      item_name_ok(name, kind) and len(separator) <= 1 and
                      separator.isascii(), f"item {name!r}")
            if metadata is not None:
                json_object(metadata, f"metadata of item {name!r}")
        self.packs = [r[0] for r in self.rows("pack", "uuid", "b")]
        self.need(all(len(u) == 16 for u in self.packs), "packs")
        self.layouts = [self.layout(r[0])
                        for r in self.rows("layout", "spec", "b")]
        self.tensors = []
        for row in self.rows("tensor", "item, name, dtype, shape, bytes, "
                             "media_type, layout, alias_of, stats, root, "
                             "chunks", "ibtbiTIIbBB"):
            try:
                self.tensors.append(self.tensor(*row))
            except (Damage, struct.error) as e:
                raise Damage(f"manifest {self.name}: tensor "
                             f"{quote(row[1])}: {e}")

    def load_facts(self):
        rows = self.db.execute(
            "SELECT id, uuid, store_uuid, generation, seq, step, created_ns, "
            "parent, saved_as, metadata, metrics, writer, tile_rule, digest "
            "FROM checkpoint").fetchall()
        self.need(len(rows) == 1, "its facts")
        typed(rows[0], "ibbiiIiBtTTtit", f"manifest {self.name}: facts")
        (number, self.uuid, store, generation, seq, self.step, _, parent,
         saved_as, metadata, metrics, _, rule, digest) = rows[0]
        self.need(number == 1 and len(self.uuid) == len(store) == 16 and
                  generation >= 1 and seq >= 1 and (self.step or 0) >= 0 and
                  (parent is None or len(parent) == 16) and
                  checkpoint_name_ok(saved_as) and rule == 1 and
                  digest == "sha256", "its facts")
        for text, what in ((metadata, "metadata"), (metrics, "metrics")):
            if text is not None:
                json_object(text, f"manifest {self.name}: {what}")

    def layout(self, spec):
        """(ndim, boxes)"""
        self.need(len(spec) >= 16, "a layout")
        version, ndim, world, count = struct.unpack_from("<4I", spec)
        each = 16 + 16 * ndim
        self.need(version == 1 and ndim <= 64 and count <= 1 << 20 and
                  len(spec) == 16 + each * count, "a layout")
        boxes = []
        for at in range(16, len(spec), each):
            rank, replica, replicas, zero, *dims = struct.unpack_from(
                f"<4I{2 * ndim}Q", spec, at)
            self.need(rank < world and replica < replicas and zero == 0,
                      "a shard of a layout")
            boxes.append((dims[:ndim], dims[ndim:]))
        return ndim, boxes

    def tensor(self, item, name, dtype, shape, size, media_type, layout,
               alias_of, stats, root, chunks):
        t = Tensor()
        t.item, t.name, t.dtype, t.bytes, t.root = item, name, dtype, size, root
        t.index, t.alias_of, t.is_file = len(self.tensors), alias_of, False
        need(0 <= item < len(self.items) and
             (not self.tensors or item >= self.tensors[-1].item), "its item")
        need(len(name) <= 65536 and utf8_ok(name), "its name")
        need(len(shape) % 8 == 0 and len(shape) <= 512, "its shape")
        t.shape = list(struct.unpack(f"<{len(shape) // 8}Q", shape))
        need((media_type is None) == (self.items[item][1] == "tensors"),
             "its media type")
        if media_type is not None:
            t.is_file = True
            need(dtype == "U8" and len(t.shape) == 1 and
                 len(media_type.encode()) <= 255, "a file")
        t.grid = Grid(dtype, t.shape, t.is_file)
        need(t.grid.bytes == size, "its bytes")
        self.check_stats(stats)
        t.shards = []
        if layout is not None:
            need(0 <= layout < len(self.layouts), "its layout")
            ndim, t.shards = self.layouts[layout]
            need(ndim == len(t.grid.shape) and all(
                o + e <= s for box in t.shards
                for o, e, s in zip(*box, t.grid.shape)), "its layout")
        need(root is None or (len(root) == 32 and not t.is_file), "its root")
        if alias_of is not None:
            need(0 <= alias_of < t.index, "its alias")
            a = self.tensors[alias_of]
            need((a.item, a.dtype, a.shape, a.alias_of, a.root) ==
                 (item, dtype, t.shape, None, root), "its alias")
        need((chunks is None) == (size == 0 or alias_of is not None) and
             chunks != b"" and len(chunks or b"") % 80 == 0, "its chunks")
        t.entries = self.entries(t, chunks or b"")
        return t

    @staticmethod
    def check_stats(b):
        need(len(b) == 72, "its statistics")
        kind, zero, count, *parts = struct.unpack_from("<II4Q", b)
        need(kind <= 3 and zero == 0 and sum(parts) <= count,
             "its statistics")

    def entries(self, t, chunks):
        out = []
        for (tile, shard, pack, off, stored_len, raw_len, head_len, codec,
             zero, zero2, digest) in struct.iter_unpack("<QIIQQIIHHI32s",
                                                        chunks):
            where = f"chunk of tile {tile}"
            need(zero == zero2 == 0, f"{where}: reserved bytes")
            need(tile < t.grid.count and pack < len(self.packs) and
                 (shard == WHOLE or shard < len(t.shards)), where)
            need(not out or (out[-1].tile, out[-1].shard) < (tile, shard),
                 f"{where}: order")
            need(0 < raw_len <= CHUNK_MAX and stored_len <= raw_len and
                 (stored_len > 0 or codec >= 2), f"{where}: lengths")
            e = Entry(tile, shard, pack, off, stored_len, raw_len, head_len,
                      codec, digest)
            need(product(self.box(t, e)[1]) * t.grid.item == raw_len,
                 f"{where}: its box has other bytes")
            out.append(e)
        return out

    @staticmethod
    def box(t, e):
        box = t.grid.box(e.tile)
        return box if e.shard == WHOLE else meet(box, t.shards[e.shard])

    def source(self, t):
        return t if t.alias_of is None else self.tensors[t.alias_of]

    @staticmethod
    def check_shards(t):
        """The layout's boxes cover the tensor exactly once; replicas, which
        are equal boxes, count once."""
        boxes = sorted({(tuple(o), tuple(e)) for o, e in t.shards if
                        product(e)})
        if not t.shards or not t.bytes:
            return
        need(sum(product(e) for _, e in boxes) == product(t.grid.shape),
             "its layout has a hole or an overlap")
        first = np.array([o for o, _ in boxes], dtype=np.uint64)
        end = first + np.array([e for _, e in boxes], dtype=np.uint64)
        for i in range(len(boxes) - 1):
            meets = ((first[i] < end[i + 1:]) & (first[i + 1:] < end[i])).all(
                axis=1)
            need(not meets.any(), "its layout has an overlap")

    def check_cover(self, t):
        """The entries cover every tile exactly once."""
        tiles = collections.defaultdict(list)
        for e in t.entries:
            tiles[e.tile].append(e)
        need(len(tiles) == t.grid.count, "its chunks do not cover it")
        for tile, entries in tiles.items():
            if len(entries) == 1 and entries[0].shard == WHOLE:
                continue
            origin, extent = t.grid.box(tile)
            seen = np.zeros(extent, dtype=np.uint8)
            for e in entries:
                need(e.shard != WHOLE, f"tile {tile}: whole and in part")
                box = self.box(t, e)
                where = tuple(slice(o - first, o - first + n) for o, n, first
                              in zip(*box, origin))
                need(not seen[where].any(), f"tile {tile}: an overlap")
                seen[where] = 1
            need(bool(seen.all()), f"tile {tile}: a hole")

    def record(self, e, packs):
        """Pack and record of entry @e; the header agrees with it."""
        pack = packs[self.packs[e.pack]]
        r = pack.head(e.off, e.head_len)
        need((r.kind, r.codec, r.raw_len, r.stored_len, r.digest) ==
             (1, e.codec, e.raw_len, e.stored_len, e.digest),
             f"{pack.name} offset {e.off}: another record than the manifest "
             f"names")
        return pack, r

    def read(self, t, packs):
        """The raw bytes of tensor @t, put together from its chunks."""
        t = self.source(t)
        self.check_cover(t)
        g = t.grid
        item = np.dtype(f"V{g.item}")  # NumPy has no 65th dimension for it
        out = np.zeros(g.shape, dtype=item)
        for e in t.entries:
            pack, r = self.record(e, packs)
            box = self.box(t, e)
            where = tuple(slice(o, o + n) for o, n in zip(*box))
            out[where] = np.frombuffer(b"".join(pack.raw(r)),
                                       dtype=item).reshape(box[1])
        return out.reshape(-1).view(np.uint8).data if t.bytes else b""

    def verify(self, t, packs):
        """Every byte of @t, without putting it together."""
        self.check_root(t)
        self.check_shards(t)
        if t.alias_of is not None:
            return
        self.check_cover(t)
        for e in t.entries:
            pack, r = self.record(e, packs)
            if r.off not in pack.proved:
                collections.deque(pack.raw(r), maxlen=0)

    def check_root(self, t):
        t, said = self.source(t), t.root
        whole = all(e.shard == WHOLE for e in t.entries)
        h = hashlib.sha256(b"ckptfs-root-1" + struct.pack(
            f"<III{len(t.shape)}Q", 1, BITS[t.dtype], len(t.shape), *t.shape))
        for e in t.entries:
            h.update(e.digest)
        need(said == (h.digest() if whole and not t.is_file else None),
             "its root")


# ---- commands ----

def check_config(store):
    path = store / "ckptfs.json"
    if not path.is_file():
        raise Missing(f"'{store}' is not a ckptfs store")
    data = path.read_bytes()
    need(len(data) <= 1 << 20 and utf8_ok(data), "ckptfs.json: its bytes")
    c = json_object(data.decode(), "ckptfs.json")
    lists = [c.get(key) for key in ("compat", "ro_compat", "incompat")]
    need(c.get("format") == "ckptfs", "ckptfs.json: format")
    need(all(isinstance(x, list) and all(isinstance(f, str) for f in x)
             for x in lists), "ckptfs.json: a list of features")
    known(not lists[2], f"feature {lists[2]}")
    version, rule = c.get("version"), c.get("tile_rule")
    need(type(version) is int and version >= 1, "ckptfs.json: version")
    known(version == 1, f"version {version}")
    hexes = "-".join("[0-9a-f]{%d}" % n for n in (8, 4, 4, 4, 12))
    need(isinstance(c.get("uuid"), str) and re.fullmatch(hexes, c["uuid"]),
         "ckptfs.json: uuid")
    known(c.get("digest") == "sha256" and type(rule) is int and rule == 1,
          "digest or tile rule")


def checkpoints(store):
    """Names of all, sorted; links are not followed."""
    top, out = store / "checkpoints", []
    for folder, _, files in os.walk(top):
        for f in files:
            path = pathlib.Path(folder) / f
            name = str(path.relative_to(top))
            if stat.S_ISREG(path.lstat().st_mode) and checkpoint_name_ok(name):
                out.append(name)
    return sorted(out, key=os.fsencode)


def quote(name):
    text = (name.decode("utf-8", "backslashreplace")
            if isinstance(name, bytes) else name)
    for a, b in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"),
                 ("\0", "\\0")):
        text = text.replace(a, b)
    return text


def say(*columns):
    line = "\t".join(map(str, columns))
    sys.stdout.buffer.write(os.fsencode(line) + b"\n")


def cmd_list(store):
    damaged = False
    for name in checkpoints(store):
        try:
            c = Checkpoint(store, name)
            say(name, uuid_text(c.uuid), c.step, len(c.tensors))
        except (Damage, Newer) as e:
            say(name, "damaged" if isinstance(e, Damage) else "newer", e)
            damaged = damaged or isinstance(e, Damage)
    return 3 if damaged else 0


def cmd_tensors(store, name):
    c, packs = Checkpoint(store, name), Packs(store)
    for t in c.tensors:
        digest = hashlib.sha256(c.read(t, packs)).hexdigest()
        say(quote(c.items[t.item][0]), quote(t.name), t.dtype,
            "[" + ",".join(map(str, t.shape)) + "]", t.bytes, digest)


def cmd_cat(store, name, item, tensor):
    c = Checkpoint(store, name)
    here = [t for t in c.tensors if c.items[t.item][0] == item]
    raw = os.fsencode(tensor)
    found = ([t for t in here if t.name == raw] or
             [t for t in here if quote(t.name).encode() == raw])
    if not found:
        raise Missing(f"{name} has no {item}/{tensor}")
    sys.stdout.buffer.write(c.read(found[0], Packs(store)))


def cmd_verify(store, *names):
    told = set()

    def tell(where, e):
        line = f"{where}{e}"
        if line not in told:
            say("newer:" if isinstance(e, Newer) else "damage:", line)
            told.add(line)

    packs = Packs(store)
    for name in names or checkpoints(store):
        try:
            c = Checkpoint(store, name)
            says = c.db.execute("PRAGMA integrity_check").fetchone()[0]
            c.need(says == "ok", says)
        except (Damage, Newer, sqlite3.Error) as e:
            tell("", e)
            continue
        for t in c.tensors:
            try:
                c.verify(t, packs)
            except (Damage, Newer) as e:
                tell(f"{name} {quote(c.items[t.item][0])}/{quote(t.name)}: ",
                     e)
    for path in [] if names else sorted(store.glob("packs/??/*.pack")):
        try:
            uuid = bytes.fromhex(path.stem.replace("-", ""))
            if str(path.relative_to(store)) == (
                    f"packs/{uuid_text(uuid)[:2]}/{uuid_text(uuid)}.pack"):
                packs[uuid].verify()
        except (Damage, Newer) as e:
            tell("", e)
        except ValueError:
            pass  # no pack's name
    say(f"{len(told)} damaged" if told else "no damage")
    return 3 if told else 0


def main():
    commands = {"list": (cmd_list, 1, 1), "tensors": (cmd_tensors, 2, 2),
                "cat": (cmd_cat, 4, 4), "verify": (cmd_verify, 1, 99)}
    args = sys.argv[1:]
    if not args or args[0] not in commands or not (
            commands[args[0]][1] <= len(args) - 1 <= commands[args[0]][2]):
        print(__doc__.strip())
        sys.exit(2)
    try:
        store = pathlib.Path(args[1])
        check_config(store)
        code = commands[args[0]][0](store, *args[2:])
        sys.stdout.flush()
        sys.exit(code or 0)
    except Damage as e:
        print(f"reader.py: damage: {e}", file=sys.stderr)
        sys.exit(3)
    except (Newer, Missing, OSError) as e:
        print(f"reader.py: {e}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
