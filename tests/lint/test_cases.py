# SPDX-License-Identifier: Apache-2.0
"""The lint of tests/cases.tsv finds what is planted in it."""
import pathlib
import sys

import cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOD = (ROOT / "tests/cases.tsv").read_text()
PYTHON = "tests/lint/test_cases.py"
C = "tests/unit/tensor/test_cover.c"
failures = []


def plant(case, fields):
    """cases.tsv with other fields of one case; None: without its line."""
    lines = [x for x in GOOD.splitlines() if not x.startswith(f"{case}\t")]
    lines += [] if fields is None else ["\t".join([case, *fields])]
    return "\n".join(lines) + "\n"


def found(what, text, *says):
    """Just these findings, each with its words."""
    got = cases.findings(text, ROOT)
    if len(got) != len(says) or any(s not in g for s, g in zip(says, got)):
        failures.append(f"{what}: got {got}, want {says}")


def never_run():
    """A test that nothing calls is none."""


def main():
    found("as it is", GOOD)
    found("good fields", plant("name-01", [f"{PYTHON}:plant {C}:"
                                           "a_hole_is_named", "a note"]))
    for test, says in ((f"{PYTHON}:plan", "has no test 'plan'"),
                       (f"{PYTHON}:failures", "has no test 'failures'"),
                       (f"{PYTHON}:", "has no test ''"),
                       (PYTHON, "has no test ''"),
                       (f"{PYTHON}:.*", "has no test '.*'"),
                       (f"{PYTHON}:never_" "run", "does not run"),
                       (f"{C}:check1", "has no test 'check1'"),
                       (f"{C}:a_hole_is_name", "has no test"),
                       ("tests/absent.py:main", "no file 'tests/absent.py'"),
                       ("tests:main", "no file 'tests'"),
                       (":main", "no file ''"),
                       ("HACKING.md:main", "has no test 'main'")):
        found(test, plant("name-01", [test]), says)
        found(f"{test} beside a good one",
              plant("name-01", [f"{PYTHON}:plant {test}"]), says)
    found("missing", plant("mount-17", None), "mount-17 is missing")
    found("twice", GOOD + GOOD.splitlines()[0] + "\n", "name-01 stands")
    found("unknown", plant("name-01", None) + "name-6\t-\tx\n", "'name-6'",
          "name-01 is missing")
    found("past the end", GOOD + "order-03\t-\tx\n", "no case 'order-03'")
    for fields in (["-"], ["-", ""], ["-", " "], [""], ["", "x"],
                   [f"{PYTHON}:plant", ""]):
        found(f"{fields}", plant("name-01", fields), "empty note")
    found("fields", plant("name-01", ["-", "a", "b"]), "4 fields")
    found("no fields", plant("name-01", []), "1 fields")
    found("empty", "", *["is missing"] * 77)
    print("\n".join(failures) if failures else "ok")
    sys.exit(1 if failures else 0)


main()
