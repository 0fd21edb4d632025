# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that a compiler does not check.

layers and vendor headers by #include; function and file sizes; every S-number
of the promises cited; SPDX lines; paths and commands in the documents exist;
every source is built; man pages and help of every command.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = {  # folder -> what it may include
    "base": {"base"},
    "format": {"base", "format"},
    "tensor": {"base", "tensor", "format"},
    "foreign": {"base", "foreign", "tensor", "format"},
    "chunk": {"base", "format", "tensor", "chunk"},
    "catalog": {"base", "format", "tensor", "chunk", "catalog"},
    "verbs": {"base", "format", "tensor", "chunk", "catalog", "verbs"},
    "writer": {"base", "format", "tensor", "foreign", "chunk", "catalog",
               "verbs", "writer", "import"},
    "tree": {"base", "format", "tensor", "foreign", "chunk", "catalog",
             "verbs", "tree"},
    "mount": {"base", "tree", "mount", "verbs"},
    "cli": {"base", "tensor", "tree", "mount", "cli"},
}
OWNERS = {
    "sqlite3.h": {"store/catalog"}, "zstd.h": {"store/chunk/codec.c"},
    "openssl/": {"store/chunk/digest.c"},
    "xxhash.h": {"store/base/hash.c"},
    "jansson.h": {"store/format/config.c"}, "fuse": {"fs/mount"},
    "zip.h": {"writer/import/npz.c"},
    "libsmartcols.h": {"fs/cli"}, "mpi.h": set(), "cuda": set(),
}
FUNCTION_LINES, FILE_LINES = 70, 900
found = []


def say(path, line, what):
    found.append(f"{path.relative_to(ROOT)}:{line}: {what}")


def sources(*ends):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard",
                          "store", "writer", "fs", "tests"], cwd=ROOT,
                         stdout=subprocess.PIPE, check=True).stdout.decode()
    return [ROOT / p for p in out.split("\n")
            if p.endswith(ends) and (ROOT / p).exists()]


def layer_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "writer":
        return "writer"
    return parts[1] if parts[0] in ("store", "fs") else None


def includes(path):
    layer = layer_of(path)
    if layer in (None, "include"):
        return
    rel = str(path.relative_to(ROOT))
    for n, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'#include ([<"])([^>"]+)', line)
        if not m:
            continue
        target = m.group(2)
        if m.group(1) == '"' and "/" in target:
            room = target.split("/")[0]
            if room not in LAYERS[layer]:
                say(path, n, f"layer {layer} may not include {target}")
        for vendor, owners in OWNERS.items():
            if target.startswith(vendor) and not any(
                    rel.startswith(o) for o in owners):
                say(path, n, f"{target} belongs to {owners or 'nobody yet'}")


def sizes(path):
    lines = path.read_text().splitlines()
    if len(lines) > FILE_LINES:
        say(path, 1, f"{len(lines)} lines; at most {FILE_LINES}")
    start = None
    for n, line in enumerate(lines, 1):
        if line == "{":
            start = n
        elif line == "}" and start:
            if n - start > FUNCTION_LINES and "tests" not in path.parts:
                say(path, start, f"a function of {n - start} lines; at most "
                                 f"{FUNCTION_LINES}")
            start = None
    if not lines or "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
        say(path, 1, "no SPDX line")
    for n, line in enumerate(lines, 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            say(path, n, "an open promise")


def built(path):
    if path.suffix != ".c" or "fuzz" in path.parts:
        return
    here = path.parent
    for folder in (here, here.parent):
        build = folder / "meson.build"
        text = build.read_text() if build.exists() else ""
        stem = path.stem[5:] if path.stem.startswith("test_") else path.stem
        if path.name in text or f"'{stem}'" in text:
            return
    say(path, 1, "no meson.build names it")


def promises():
    text = "".join(p.read_text() for p in sources(".c", ".h")
                   if "tests" not in p.parts)
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10):
        if not re.search(rf"\bS{n}\b", text):
            found.append(f"promise S{n} is cited nowhere")


def documents():
    for name in ("README.md", "ARCHITECTURE.md", "HACKING.md"):
        doc = ROOT / name
        if not doc.exists():
            found.append(f"{name} is missing")
            continue
        for n, line in enumerate(doc.read_text().splitlines(), 1):
            for path in re.findall(
                    r"\b((?:store|writer|fs|tests|contrib)/[\w./-]+)", line):
                path = path.rstrip(".,/")
                if not (ROOT / path).exists():
                    say(doc, n, f"there is no {path}")
            if re.search(r"/work/|/farm/", line):
                say(doc, n, "a machine's own path")
    main = (ROOT / "fs/cli/main.c").read_text()
    for command in re.findall(r"&cli_(\w+)", main):
        page = ROOT / f"contrib/man/ckptfs-{command}.1"
        if not page.exists():
            found.append(f"there is no man page of {command}")
    for page in sorted((ROOT / "contrib/man").glob("*.1")):
        if page.name not in (ROOT / "contrib/meson.build").read_text():
            say(page, 1, "contrib/meson.build does not install it")


def man_pages():
    pages = [str(p) for p in sorted((ROOT / "contrib/man").glob("*.1"))]
    try:
        p = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages],
                           stdout=subprocess.PIPE)
    except FileNotFoundError:
        print("mandoc is not here: man pages are not checked")
        return
    found.extend(p.stdout.decode().splitlines())


def main():
    for path in sources(".c", ".h"):
        includes(path)
        sizes(path)
        built(path)
    promises()
    documents()
    man_pages()
    print("\n".join(found) if found else "lint: no findings")
    sys.exit(1 if found else 0)


main()
