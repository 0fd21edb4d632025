# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that a compiler does not check.

layers and vendor headers by #include; no process is made by the library; sizes
of functions, files and lines; every S-number of the promises cited; SPDX lines;
every source is built; paths in the documents exist; every command has a man
page, which mandoc finds well made; commands and options named in documents and
man pages are in the command's help, and the help's options are in its man page;
tests/cases.tsv (cases.py).
"""
import pathlib
import re
import subprocess
import sys

import cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = {  # folder -> what it may include
    "base": {"base"},
    "format": {"base", "format"},
    "tensor": {"base", "tensor", "format"},
    "foreign": {"base", "foreign", "tensor", "format"},
    "mem": {"base", "mem"},
    "chunk": {"base", "format", "tensor", "chunk"},
    "catalog": {"base", "format", "tensor", "chunk", "catalog"},
    "verbs": {"base", "format", "tensor", "chunk", "catalog", "verbs"},
    "writer": {"base", "format", "tensor", "mem", "foreign", "chunk",
               "catalog", "verbs", "writer", "import"},
    "tree": {"base", "format", "tensor", "foreign", "chunk", "catalog",
             "verbs", "tree"},
    "mount": {"base", "tree", "mount", "verbs"},
    "cli": {"base", "tensor", "format", "tree", "mount", "cli"},
}
OWNERS = {
    "sqlite3.h": {"store/catalog"}, "zstd.h": {"store/chunk/codec.c"},
    "openssl/": {"store/chunk/digest.c"},
    "xxhash.h": {"store/base/hash.c"},
    "jansson.h": {"store/format/config.c"}, "fuse": {"fs/mount"},
    "zip.h": {"writer/import/npz.c"},
    "libsmartcols.h": {"fs/cli"}, "mpi.h": set(), "cuda": {"store/mem/cuda.c"},
}
FUNCTION_LINES, FILE_LINES, COLUMNS = 70, 900, 80
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


def processes(path):
    """A process with threads, or with CUDA or MPI, survives no fork: the
    library makes none. The daemon and the command are their own programs."""
    if layer_of(path) in (None, "mount", "cli"):
        return
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()),
                  path.read_text(), flags=re.S)
    for m in re.finditer(r"\b(v?fork|clone3?|daemon|system|popen|"
                         r"posix_spawnp?|exec[lv]p?e?)\s*\(", text):
        say(path, text.count("\n", 0, m.start()) + 1,
            f"{m.group(1)}() makes a process")


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
        wide = len(line.expandtabs(8))
        if wide > COLUMNS and "tests" not in path.parts:
            say(path, n, f"{wide} columns; at most {COLUMNS}")


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
    for command in commands():
        page = ROOT / f"contrib/man/ckptfs-{command}.1"
        if not page.exists():
            found.append(f"there is no man page of {command}")
    for page in pages():
        if page.name not in (ROOT / "contrib/meson.build").read_text():
            say(page, 1, "contrib/meson.build does not install it")


def commands():
    """Every command that --help shows, and so has a page."""
    main = (ROOT / "fs/cli/main.c").read_text()
    table = main[main.index("cli_commands[] = {"):]
    return re.findall(r"&cli_(\w+)", table[:table.index("};")])


def pages():
    return sorted((ROOT / "contrib/man").glob("*.[1-9]"))


def man_pages():
    names = [str(p) for p in pages()]
    for tool in (["mandoc", "-T", "lint", "-W", "warning", *names],
                 ["groff", "-m", "mdoc", "-ww", "-z", *names]):
        try:
            p = subprocess.run(tool, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        except FileNotFoundError:
            if tool[0] == "mandoc": # groff is a second opinion
                found.append("mandoc is not here, so man pages cannot be "
                             "checked; contrib/setup installs it")
            continue
        found.extend(p.stdout.decode().splitlines())


def c_texts(source):
    """The source with its string literals joined, macros put in."""
    header = (ROOT / "fs/cli/cli.h").read_text().replace("\\\n", "\n")
    select = re.search(r"#define CLI_SELECT_HELP((?:\s*\"[^\n]*\n)+)", header)
    source = source.replace("CLI_SELECT_HELP", select.group(1))
    return re.sub(r'"\s*"', "", source)


def options_of(text):
    """Options that begin a line of a help text, with their short forms."""
    out = set()
    for line in text.split("\\n"):
        m = re.match(r"\s+((?:-\w, )?--[\w-]+|-\w)\b", line)
        if m:
            out |= set(m.group(1).split(", "))
    return out


def page_options(page):
    """Options of the page's list: .It Fl x , Fl Fl long Ar ..."""
    out = set()
    for line in page.read_text().splitlines():
        if not line.startswith(".It Fl"):
            continue
        words = line[4:].split()
        for i, w in enumerate(words):
            if w == "Fl" and words[i + 1:i + 2] == ["Fl"]:
                out.add("--" + words[i + 2])
            elif w == "Fl" and (i == 0 or words[i - 1] != "Fl"):
                out.add("-" + words[i + 1])
    return out


def helps():
    """command -> options that `ckptfs COMMAND --help` lists."""
    text = c_texts((ROOT / "fs/cli/option.c").read_text())
    text = text[text.index("common[] = {"):].split("};")[0]
    # long name -> the option with its short form
    common = {o[2:]: options_of(line) for line in re.findall(
        r'"(  [^"]*\\n)"', text) for o in options_of(line)
        if o.startswith("--")}
    if len(common) != 5:
        found.append(f"lint misreads the common options: {common}")
    out = {}
    for path in sources(".c"):
        if path.parent.name != "cli":
            continue
        for name, body in re.findall(
                r"^const struct cli_command cli_(\w+) = \{(.*?)^\};",
                path.read_text(), re.M | re.S):
            text = c_texts(body)
            out[name] = options_of(
                text[text.index(".help ="):].split(".help =")[1]
                .replace('"', " "))
            lacks = re.search(r'\.lacks = "([^"]*)"', body)
            for o in set(common) - set(lacks.group(1).split()
                                       if lacks else ()):
                out[name] |= common[o]
    for name in commands():
        if name not in out:
            found.append(f"lint finds no help of {name}")
    return out


def help_and_pages(help_of):
    """A command's --help and its page list the same options."""
    for name, has in help_of.items():
        page = ROOT / f"contrib/man/ckptfs-{name}.1"
        if name not in commands() or not page.exists():
            continue
        for missing in sorted(has - page_options(page)):
            say(page, 1, f"does not list {missing}")
        for extra in sorted(page_options(page) - has):
            say(page, 1, f"lists {extra}, which --help does not")


def code_of(text):
    """(line, code) of a document: what is indented, and what is in `...`."""
    for n, line in enumerate(text.splitlines(), 1):
        if line.startswith("    "):
            yield n, line.strip()
        else:
            for code in re.findall(r"`([^`]+)`", line):
                yield n, code


def commands_in_documents(help_of):
    """`ckptfs COMMAND --option` of the documents is what --help lists."""
    for name in ("README.md", "ARCHITECTURE.md", "HACKING.md"):
        doc = ROOT / name
        for n, code in code_of(doc.read_text() if doc.exists() else ""):
            m = re.match(r"ckptfs ([a-z]+)\b([^|#]*)", code)
            if m and m.group(1) not in help_of:
                say(doc, n, f"there is no command '{m.group(1)}'")
            for option in re.findall(r"(?<!\S)-[^\s=]+",
                                     m.group(2) if m else ""):
                # -lR is -l and -R
                for o in ([option] if option.startswith("--")
                          else ["-" + c for c in option[1:]]):
                    if o not in help_of.get(m.group(1), {o}):
                        say(doc, n, f"'{m.group(1)} --help' does not list "
                                    f"{o}")


def main():
    for path in sources(".c", ".h"):
        includes(path)
        processes(path)
        sizes(path)
        built(path)
    promises()
    documents()
    man_pages()
    help_of = helps()
    help_and_pages(help_of)
    commands_in_documents(help_of)
    found.extend(cases.findings((ROOT / "tests/cases.tsv").read_text(), ROOT))
    print("\n".join(found) if found else "lint: no findings")
    sys.exit(1 if found else 0)


main()
