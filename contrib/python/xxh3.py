# SPDX-License-Identifier: Apache-2.0
"""XXH3-64 with seed 0 and the default secret, in Python and NumPy.

Written from xxHash's specification, for reader.py; long inputs go through
NumPy a block of 1,024 bytes at a time, about 50 MB a second.
"""
import numpy as np

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


KEYS = np.stack([np.frombuffer(SECRET[8 * i:8 * i + 64], dtype="<u8")
                 for i in range(16)])
SCRAMBLE = np.frombuffer(SECRET[128:192], dtype="<u8")
LAST = np.frombuffer(SECRET[121:185], dtype="<u8").reshape(1, 8)


def xxh3_long(b):
    """Stripes of 64 bytes; 16 stripes a block, as the secret has 192 bytes."""
    n = len(b)
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
    with np.errstate(over="ignore"):
        for block in data:
            acc = acc + stripes(block, KEYS).sum(
                axis=0, dtype=np.uint64)
            acc = ((acc ^ acc >> np.uint64(47)) ^ SCRAMBLE) * np.uint64(P32_1)
        rest = (n - 1 - 1024 * blocks) // 64
        tail = np.frombuffer(b[1024 * blocks:1024 * blocks + 64 * rest],
                             dtype="<u8").reshape(rest, 8)
        acc = acc + stripes(tail, KEYS[:rest]).sum(axis=0, dtype=np.uint64)
        last = np.frombuffer(b[n - 64:], dtype="<u8").reshape(1, 8)
        acc = acc + stripes(last, LAST)[0]
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
