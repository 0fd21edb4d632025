# SPDX-License-Identifier: Apache-2.0
"""tests/cases.tsv: every real failure has a test that is there and runs, or a
reason.

A line is: case, tests (path:function, several parted by spaces) or -, and a
note, which only - must have.
"""
import re

COUNTS = {"name": 5, "dtype": 11, "index": 11, "mount": 17, "scale": 8,
          "order": 2, "perm": 2, "async": 6, "layout": 7, "width": 8}
DEFINED = {".py": r"^def {}\(", ".c": r"^static void {}\(void \*\*state\)"}


def wrong_test(root, test):
    """What is wrong with path:function, or None."""
    path, _, function = test.partition(":")
    file = root / path
    if not path or not file.is_file():
        return f"there is no file '{path}'"
    defined = DEFINED.get(file.suffix)
    text = file.read_text()
    if not defined or not re.match(r"\w+$", function) or not re.search(
            defined.format(function), text, re.M):
        return f"{path} has no test '{function}'"
    if len(re.findall(rf"\b{function}\b", text)) < 2:
        return f"{path} does not run '{function}'"
    return None


def findings(text, root):
    """Of the text of cases.tsv, whose paths begin at root."""
    out, seen = [], set()
    wanted = {f"{area}-{n:02}" for area, count in COUNTS.items()
              for n in range(1, count + 1)}
    for n, line in enumerate(text.splitlines(), 1):
        say = lambda what: out.append(f"tests/cases.tsv:{n}: {what}")
        case, *fields = line.split("\t")
        if case not in wanted:
            say(f"there is no case '{case}'")
        if case in seen:
            say(f"{case} stands there twice")
        seen.add(case)
        if len(fields) not in (1, 2):
            say(f"{case} has {len(fields) + 1} fields, not 2 or 3")
            continue
        tests = fields[0]
        if not all(f.strip() for f in fields) or tests == "-" and len(
                fields) < 2:
            say(f"{case} has an empty note, or no test and no note")
        for test in tests.split() if tests != "-" else []:
            wrong = wrong_test(root, test)
            if wrong:
                say(f"{case}: {wrong}")
    return out + [f"tests/cases.tsv: {case} is missing"
                  for case in sorted(wanted - seen)]
