# SPDX-License-Identifier: Apache-2.0
"""The independent reader: known answers, and nothing damaged is believed.

Works on copies of the golden store, so it needs no built program. Lies are
told with right checksums, as a hostile store would tell them.
"""
import contextlib
import io
import os
import pathlib
import re
import shutil
import sqlite3
import struct
import sys
import tempfile
import unittest

try:
    import numpy  # noqa: F401
except ModuleNotFoundError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "contrib/python"))
import reader  # noqa: E402
from xxh3 import xxh3  # noqa: E402

HAVE_ZSTD = bool(reader.MODULE or shutil.which("zstd"))
if not HAVE_ZSTD:
    print("left out: the golden store, and cells of zstd: no zstd here")


def sanity_bytes(n):
    """The buffer of xxHash's own sanity check."""
    out, g = bytearray(), 2654435761
    for _ in range(n):
        out.append(g >> 56)
        g = g * 11400714785074694797 % (1 << 64)
    return bytes(out)


def seal_pages(data):
    data = bytearray(data)
    for at in range(0, len(data), 4096):
        page = struct.pack("<I", at // 4096 + 1) + data[at:at + 4088]
        struct.pack_into("<Q", data, at + 4088, xxh3(page))
    return bytes(data)


class Pure(unittest.TestCase):
    def test_xxh3_gives_the_answers_of_its_project(self):
        known = {0: 0x2D06800538D394C2, 1: 0xC44BDFF4074EECDB,
                 6: 0x27B56A84CD2D7325, 12: 0xA713DAF0DFBB77E7,
                 24: 0xA3FE70BF9D3510EB, 48: 0x397DA259ECBA1F11,
                 80: 0xBCDEFBBB2C47C90A, 195: 0xCD94217EE362EC3A,
                 403: 0xCDEB804D65C6DEA4, 512: 0x617E49599013CB6B,
                 2048: 0xDD59E2C3A5F038E0, 2240: 0x6E73A90539CF2948,
                 2367: 0xCB37AEB9E5D361ED}
        data = sanity_bytes(max(known))
        for n, want in known.items():
            self.assertEqual(xxh3(data[:n]), want, f"{n} bytes")
        self.assertEqual(xxh3(b"ckptfs"), 0xF1430404450C02B1)
        self.assertEqual(xxh3(bytes(range(256)) * 16), 0xEB4B7C3707879151)

    def test_tiles_are_the_worked_ones(self):
        for shape, item, tile in (
                ([4096, 4096], 2, [256, 512]), ([32000, 4096], 2, [1000, 512]),
                ([50257, 768], 4, [197, 384]),
                ([64, 4096, 1408], 2, [1, 2048, 704]),
                ([8192, 64, 128], 2, [256, 8, 128]),
                ([512, 512, 3, 3], 4, [64, 64, 3, 3]),
                ([1, 10**8], 2, [1, 390625]), ([7, 1000003], 4, [1, 62501]),
                ([8192, 28672], 2, [256, 3584]), ([], 8, [])):
            self.assertEqual(reader.tile_shape(shape, item), tile)

    def test_names_follow_the_rules(self):
        for name in ("a", "gpt2-125m/4000", "a b/c:d", "Latest", "x" * 255):
            self.assertTrue(reader.checkpoint_name_ok(name), name)
        for name in ("", "/a", "a/", "a//b", "a/..", ".x", "a/@b", "latest",
                     "a/newest", "README.txt", "a\n", "x" * 256,
                     "/".join(["xxx"] * 257)):
            self.assertFalse(reader.checkpoint_name_ok(name), name)

    @unittest.skipUnless(HAVE_ZSTD, "no zstd here")
    def test_a_cell_is_exactly_one_frame_of_its_length(self):
        # raw blocks, made by hand: 5 bytes 'hello', content size 5
        frame = bytes.fromhex("28b52ffd2005290000") + b"hello"
        self.assertEqual(reader.unzstd(frame, 5), b"hello")
        # a megabyte of one byte in 12 bytes, its size not told
        bomb = bytes.fromhex("28b52ffd0058") + b"".join(
            struct.pack("<I", last | 2 | 131072 << 3)[:3] + b"x"
            for last in [0] * 7 + [1])
        for data, want in ((frame + b"\0", 5), (frame + frame, 10),
                           (frame, 6), (frame, 4), (frame[:-1], 5), (b"", 5),
                           (frame[:4], 5), (bomb, 10), (b"hello", 5)):
            with self.assertRaises(reader.Damage):
                out = reader.unzstd(data, want)
                reader.need(len(out) == want, "length")


class Golden(unittest.TestCase):
    """Each test has a copy of the store to spoil."""

    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ckptfs-reader-"))
        self.addCleanup(shutil.rmtree, self.tmp)
        self.store = self.tmp / "store"
        shutil.copytree(ROOT / "tests/golden/store-1", self.store)
        self.pack = next(self.store.glob("packs/*/*.pack"))
        self.manifest = self.store / "checkpoints/zstd/1"
        if not HAVE_ZSTD:
            self.skipTest("no zstd here")

    def run_reader(self, *args):
        """(exit code, stdout, stderr) of main(), in this process."""
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        was = sys.argv
        sys.argv = ["reader.py", args[0], str(self.store), *args[1:]]
        try:
            with contextlib.redirect_stdout(out), \
                    contextlib.redirect_stderr(err):
                reader.main()
        except SystemExit as e:
            code = e.code
        finally:
            sys.argv = was
        out.flush()
        return code, out.buffer.getvalue(), err.getvalue()

    def damaged(self, what, where=b""):
        code, out, err = self.run_reader("verify")
        self.assertEqual(code, 3, f"{what}: {out[-300:]} {err}")
        self.assertIn(where, out + err.encode(), what)

    def change(self, sql, *values):
        """One statement on the manifest; its pages are right again."""
        db = sqlite3.connect(self.manifest)
        db.execute("PRAGMA foreign_keys=OFF")
        self.assertNotEqual(db.execute(sql, values).rowcount, 0, sql)
        db.commit()
        db.close()
        self.manifest.write_bytes(seal_pages(self.manifest.read_bytes()))

    def entries(self, name):
        db = sqlite3.connect(self.manifest)
        chunks = db.execute("SELECT chunks FROM tensor WHERE name=?",
                            (name,)).fetchone()[0]
        db.close()
        return bytearray(chunks)

    def test_it_is_clean_as_it_is(self):
        self.assertEqual(self.run_reader("verify")[:2], (0, b"no damage\n"))
        self.assertEqual(self.run_reader("verify", "again/2")[0], 0)

    def test_flipped_bytes_of_a_manifest_are_found(self):
        data = self.manifest.read_bytes()
        for at in [*range(0, 100, 7), *range(100, len(data), 1511)]:
            spoiled = bytearray(data)
            spoiled[at] ^= 0x10
            self.manifest.write_bytes(spoiled)
            self.damaged(f"byte {at}", b"zstd/1")
        self.manifest.write_bytes(data)
        self.assertEqual(self.run_reader("verify")[0], 0)

    def test_flipped_bytes_of_a_pack_are_found(self):
        data = self.pack.read_bytes()
        table = struct.unpack_from("<Q", data, len(data) - 48)[0]
        for at in [*range(0, 64, 5), *range(64, len(data), 9973),
                   *range(table - 8, len(data), 401), len(data) - 1]:
            spoiled = bytearray(data)
            spoiled[at] ^= 1
            self.pack.write_bytes(spoiled)
            self.damaged(f"byte {at}", b"packs/")

    def test_cut_files_are_found(self):
        for path in (self.pack, self.manifest):
            data = path.read_bytes()
            for n in (0, 1, 63, 64, 127, 128, 4095, 4096, len(data) // 2,
                      len(data) - 64, len(data) - 1):
                path.write_bytes(data[:n])
                self.damaged(f"{path.name} cut at {n}")
            path.write_bytes(data + bytes(4096))
            self.damaged(f"{path.name} grown")
            path.write_bytes(data)

    def test_a_lost_pack_is_damage_and_lists_still_work(self):
        self.pack.unlink()
        self.damaged("no pack", b"is missing")
        self.assertEqual(self.run_reader("list")[0], 0)
        code, _, err = self.run_reader("tensors", "zstd/1")
        self.assertEqual((code, err.count("\n")), (3, 1))

    def test_facts_that_lie_are_damage(self):
        for sql in ("UPDATE checkpoint SET generation=0",
                    "UPDATE checkpoint SET seq=-1",
                    "UPDATE checkpoint SET step=-1",
                    "UPDATE checkpoint SET uuid=x'00'",
                    "UPDATE checkpoint SET parent=x'00'",
                    "UPDATE checkpoint SET saved_as='../x'",
                    "UPDATE checkpoint SET metadata='[]'",
                    "UPDATE checkpoint SET metadata='{\"a\":1,\"a\":2}'",
                    "UPDATE checkpoint SET digest='md5'",
                    "UPDATE checkpoint SET tile_rule=2",
                    "DELETE FROM checkpoint",
                    "UPDATE item SET kind='other' WHERE id=0",
                    "UPDATE item SET kind='files' WHERE id=0",
                    "UPDATE item SET name='a/b' WHERE id=0",
                    "UPDATE item SET separator='--' WHERE id=0",
                    "UPDATE item SET separator='\u00e9' WHERE id=0",
                    "UPDATE item SET id=7 WHERE id=0",
                    "UPDATE pack SET uuid=x'00' WHERE id=0",
                    "UPDATE layout SET spec=x'00' WHERE id=0",
                    "UPDATE tensor SET item=9 WHERE id=0",
                    "UPDATE tensor SET item=1 WHERE id=0",
                    "UPDATE tensor SET name=x'ff' WHERE id=0",
                    "UPDATE tensor SET dtype='f64' WHERE id=0",
                    "UPDATE tensor SET shape=x'00' WHERE id=0",
                    "UPDATE tensor SET shape=zeroblob(520) WHERE id=0",
                    "UPDATE tensor SET shape=x'ffffffffffffffff' WHERE id=1",
                    "UPDATE tensor SET bytes=9 WHERE id=0",
                    "UPDATE tensor SET media_type='' WHERE id=0",
                    "UPDATE tensor SET layout=5 WHERE id=1",
                    "UPDATE tensor SET layout=0 WHERE id=1",
                    "UPDATE tensor SET alias_of=3 WHERE name='tied'",
                    "UPDATE tensor SET alias_of=id WHERE name='tied'",
                    "UPDATE tensor SET stats=NULL WHERE id=0",
                    "UPDATE tensor SET stats=zeroblob(71) WHERE id=0",
                    "UPDATE tensor SET stats=CAST(x'04' || zeroblob(71) "
                    "AS BLOB) WHERE id=0",  # || makes a text
                    "UPDATE tensor SET root=NULL WHERE name='vector'",
                    "UPDATE tensor SET root=zeroblob(32) WHERE name='whole'",
                    "UPDATE tensor SET root=zeroblob(32) "
                    "WHERE name='sharded'",
                    "UPDATE tensor SET chunks=NULL WHERE name='vector'",
                    "UPDATE tensor SET chunks=x'' WHERE name='vector'",
                    "UPDATE tensor SET chunks=CAST(chunks || x'00' AS "
                    "BLOB) WHERE name='vector'",
                    "UPDATE tensor SET chunks=zeroblob(80) "
                    "WHERE name='empty'",
                    "CREATE TABLE more(x)",
                    "CREATE VIEW tensors AS SELECT 1",
                    "PRAGMA application_id=1"):
            self.setUp()
            if sql.startswith("UPDATE tensor"):  # names are BLOBs
                sql = re.sub(r"name=('\w+')", r"name=CAST(\1 AS BLOB)", sql)
            self.change(sql)
            self.damaged(sql, b"zstd/1")

    def test_chunk_entries_that_lie_are_damage(self):
        whole, cut = b"vector", b"sharded"
        for name, at, code, value in (
                (whole, 0, "Q", 1), (whole, 0, "Q", 1 << 63),
                (whole, 8, "I", 0), (whole, 12, "I", 9),
                (whole, 16, "Q", 0), (whole, 16, "Q", 1 << 62),
                (whole, 16, "Q", 65), (whole, 24, "Q", 0),
                (whole, 24, "Q", 1 << 62), (whole, 32, "I", 0),
                (whole, 32, "I", 3996), (whole, 36, "I", 0),
                (whole, 36, "I", 1 << 31), (whole, 40, "H", 9),
                (whole, 42, "H", 1), (whole, 44, "I", 1),
                (whole, 48, "Q", 0), (cut, 8, "I", 7),
                (cut, 8, "I", reader.WHOLE)):
            self.setUp()
            chunks = self.entries(name)
            struct.pack_into("<" + code, chunks, at, value)
            self.change("UPDATE tensor SET chunks=? WHERE name=?",
                        bytes(chunks), name)
            self.damaged(f"{name} {at} {value}", name)

    def test_chunks_out_of_order_or_lost_are_damage(self):
        chunks = self.entries(b"sharded")
        one = [bytes(chunks[i:i + 80]) for i in range(0, len(chunks), 80)]
        self.assertGreater(len(one), 3)
        for some in (one[1:], one[:-1], one[::-1], one[:1] + one,
                     one[:2] + one[3:]):
            self.change("UPDATE tensor SET chunks=? WHERE name=?",
                        b"".join(some), b"sharded")
            self.damaged(f"{len(some)} of {len(one)}", b"sharded")

    def test_shards_that_overlap_are_damage(self):
        db = sqlite3.connect(self.manifest)
        spec = bytearray(db.execute("SELECT spec FROM layout").fetchone()[0])
        db.close()
        for at, value in ((0, 2), (4, 65), (8, 0), (12, 1 << 20),
                          (16 + 12, 1),        # reserved
                          (16 + 16, 1),        # an origin
                          (16 + 32, 102),      # an extent: overlaps the next
                          (16 + 32, 100)):     # ... leaves a hole
            lie = bytearray(spec)
            struct.pack_into("<I", lie, at, value)
            self.change("UPDATE layout SET spec=?", bytes(lie))
            self.damaged(f"layout {at} {value}", b"zstd/1")

    def test_a_layout_must_cover_also_where_every_tile_is_whole(self):
        def lay(*boxes):
            return struct.pack("<4I", 1, 2, len(boxes), len(boxes)) + b"".join(
                struct.pack("<4I4Q", i, 0, 1, 0, *box)
                for i, box in enumerate(boxes))

        left, right = (0, 0, 400, 200), (0, 200, 400, 300)
        for boxes, code in (((left, right), 0), ((right, left, left), 0),
                            ((left, right, (9, 9, 0, 5)), 0), ((left,), 3),
                            ((left, (0, 201, 400, 299)), 3),
                            ((left, right, (0, 0, 400, 1)), 3),
                            # the volume is right, and yet
                            ((left, (0, 100, 400, 300)), 3),
                            ((left, (0, 201, 400, 300)), 3)):
            self.setUp()
            self.change("INSERT INTO layout VALUES(1, ?)", lay(*boxes))
            self.change("UPDATE tensor SET layout=1 WHERE name=?", b"whole")
            self.assertEqual(self.run_reader("verify")[0], code, boxes)

    def spoil_record(self, at, code, value):
        """A field of the first record's header, its checksum right again."""
        data = bytearray(self.pack.read_bytes())
        off = bytes(data).index(b"ckptREC1")
        h = struct.unpack_from("<I", data, off + 8)[0]
        struct.pack_into("<" + code, data, off + at, value)
        struct.pack_into("<Q", data, off + h - 8,
                         xxh3(bytes(data[off:off + h - 8])))
        self.pack.write_bytes(data)

    def test_record_headers_that_lie_are_damage(self):
        for at, code, value in (
                (12, "H", 0), (12, "H", 2), (26, "H", 20), (28, "I", 0),
                (28, "I", 1 << 31), (32, "Q", 0), (32, "Q", 1 << 62),
                (40, "Q", 0), (40, "Q", 1 << 62), (48, "Q", 0),
                (80, "I", 0), (80, "I", 0xFFFFFFFF), (88, "Q", 0)):
            self.setUp()
            self.spoil_record(at, code, value)
            self.damaged(f"record {at} {value}", b"packs/")

    def test_newer_marks_are_told_as_such(self):
        for at, code, value in ((14, "H", 3), (20, "I", 1), (24, "H", 2),
                                (84, "I", 4)):
            self.setUp()
            self.spoil_record(at, code, value)
            code, out, _ = self.run_reader("verify")
            self.assertEqual(code, 3)
            self.assertIn(b"newer:", out, f"record {at} {value}")
        self.setUp()
        self.change("PRAGMA user_version=2")
        self.assertIn(b"newer:", self.run_reader("verify")[1])

    def test_compat_flags_are_ignored(self):
        self.spoil_record(16, "I", 0xFFFFFFFF)
        self.assertEqual(self.run_reader("verify")[0], 0)

    def test_the_stores_own_file_is_checked(self):
        path = self.store / "ckptfs.json"
        text = path.read_text()
        for a, b, code in (
                ('"ckptfs"', '"x"', 3), ('"version": 1', '"version": 2', 1),
                ('"version": 1', '"version": 0', 3),
                ('"version": 1', '"version": true', 3),
                ('"incompat": []', '"incompat": ["shiny"]', 1),
                ('"compat": []', '"compat": ["x"]', 0),
                ('"ro_compat": []', '"ro_compat": ["x"]', 0),
                ('"compat": []', '"compat": [1]', 3),
                ('"compat": []', '"compat": [], "compat": []', 3),
                ('"compat": [],', "", 3), ('"sha256"', '"md5"', 1),
                ('"tile_rule": 1', '"tile_rule": 2', 1),
                ('"uuid": "', '"uuid": "0', 3), ("{", "", 3),
                ("}", "", 3), ("{", "\ufeff{", 3), ("}", "} 1", 3)):
            self.assertIn(a, text)
            path.write_text(text.replace(a, b, 1), "utf-8")
            got, out, err = self.run_reader("list")
            self.assertEqual(got, code, f"{a} -> {b}: {err}")
            self.assertEqual(err.count("\n"), 0 if code == 0 else 1)
        path.write_bytes(b"\xff" + text.encode())
        self.assertEqual(self.run_reader("list")[0], 3)
        path.write_text("[" * 100000)
        self.assertEqual(self.run_reader("list")[0], 3)
        path.unlink()
        self.assertEqual(self.run_reader("list")[0], 1)

    def test_tensors_are_read_by_either_form_of_their_name(self):
        self.assertEqual(self.run_reader("cat", "zstd/1", "model",
                                         "nul\\0name")[:2],
                         self.run_reader("cat", "again/2", "model",
                                         "nul\\0name")[:2])
        code, out, _ = self.run_reader("cat", "zstd/1", "model", "scalar")
        self.assertEqual((code, len(out)), (0, 8))
        self.assertEqual(self.run_reader("cat", "zstd/1", "model",
                                         "empty")[:2], (0, b""))
        self.assertEqual(
            self.run_reader("cat", "zstd/1", "model", "tied")[1],
            self.run_reader("cat", "zstd/1", "model", "vector")[1])

    def test_what_is_not_there_is_no_damage(self):
        for args in (("tensors", "zstd/2"), ("tensors", "../x"),
                     ("tensors", "zstd"), ("tensors", "zstd/1/x"),
                     ("tensors", ""), ("cat", "zstd/1", "model", "no"),
                     ("cat", "zstd/1", "no", "scalar")):
            code, out, err = self.run_reader(*args)
            self.assertEqual((code, out, err.count("\n")), (1, b"", 1), args)
        self.assertEqual(self.run_reader("tensors")[0], 2)

    def test_links_are_not_followed(self):
        os.symlink("1", self.store / "checkpoints/zstd/link")
        self.assertNotIn(b"link", self.run_reader("list")[1])
        self.assertEqual(self.run_reader("tensors", "zstd/link")[0], 1)
        real = self.tmp / "elsewhere"
        self.pack.rename(real)
        os.symlink(real, self.pack)
        self.damaged("a pack that is a link")


if __name__ == "__main__":
    unittest.main()
