# SPDX-License-Identifier: Apache-2.0
"""meson install into a folder, a program of another project against it by
pkg-config, and an uninstall that leaves nothing."""
import os
import pathlib
import shlex
import subprocess

import numpy
import safetensors.numpy

from ckptest import PROGRAM, ROOT, check, done, equal, folder, run

EXAMPLES = ROOT / "contrib/examples"
BUILD = pathlib.Path(PROGRAM).resolve().parents[2]


def meson(*args, **kw):
    return subprocess.run(["meson", *map(str, args)], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          cwd=BUILD, **kw)


def files(root):
    return {str(p.relative_to(root)) for p in root.rglob("*")
            if p.is_symlink() or p.is_file()}


def one(names, end):
    found = [n for n in names if n.endswith(end)]
    check(found, f"{end} is installed")
    return found[0] if found else ""


def compiler(root, env):
    """Flags of pkg-config, as a project that has the store installed."""
    names = files(root)
    pc = root / one(names, "pkgconfig/ckpt.pc")
    env.update(PKG_CONFIG_PATH=str(pc.parent),
               PKG_CONFIG_SYSROOT_DIR=str(root))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ckpt"],
                           check=True, stdout=subprocess.PIPE, text=True,
                           env=env).stdout
    lib = root / one(names, "/libckpt.so.0")
    env["LD_LIBRARY_PATH"] = str(lib.parent)
    return shlex.split(flags)


def examples(work, flags, env):
    store = work / "store"
    for name in ("read_tensor", "save_tensor"):
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic",
                        "-Werror", EXAMPLES / f"{name}.c", "-o", work / name,
                        *flags], check=True)
    want = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    safetensors.numpy.save_file({"a.w": want}, work / "m.safetensors")
    run("init", store)
    run("import", work / "m.safetensors", f"{store}:run/1")
    read = [work / "read_tensor", store]
    p = subprocess.run([*read, "run/1", "model", "a.w"], env=env,
                       stdout=subprocess.PIPE)
    equal(p.stdout, want.tobytes(), "the example reads a tensor")
    p = subprocess.run([*read, "run/1", "model", "b"], env=env,
                       stderr=subprocess.PIPE)
    equal(p.returncode, 1, "an absent tensor")
    subprocess.run([work / "save_tensor", store], check=True, env=env)
    for step, value in ((1, 1.0), (2, 3.0), (3, 6.0)):
        p = subprocess.run([*read, f"demo/{step}", "model", "weight"],
                           env=env, stdout=subprocess.PIPE)
        got = numpy.frombuffer(p.stdout, dtype=numpy.float32)
        check(got.shape == (2048,) and (got == value).all(),
              f"what the example saved at step {step}")


def main():
    env = dict(os.environ)
    with folder() as work:
        root = work / "root"
        meson("install", "--no-rebuild", "--destdir", root)
        names = files(root)
        for end in ("bin/ckptfs", "include/ckpt/ckpt.h", "include/ckpt/err.h",
                    "include/ckpt/read.h", "include/ckpt/store.h",
                    "include/ckpt/types.h", "include/ckpt/writer.h",
                    "man1/ckptfs.1", "man1/ckptfs-import.1", "/libckpt.so"):
            one(names, end)
        if os.path.exists("/dev/fuse"):
            one(names, "sbin/mount.ckptfs")
        examples(work, compiler(root, env), env)
        subprocess.run(["ninja", "uninstall"], check=True, cwd=BUILD,
                       stdout=subprocess.DEVNULL,
                       env=dict(os.environ, DESTDIR=str(root)))
        equal(files(root), set(), "uninstall leaves nothing")


main()
done()
