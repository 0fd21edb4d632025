# SPDX-License-Identifier: Apache-2.0
"""Bad safetensors files: the real library's verdict, in one sentence, with
little memory, and nothing left behind."""
import os
import resource
import subprocess

from ckptest import *

# Refused here though the library takes them: showing them is unsafe.
STRICTER = {
    "key_duplicate_same.safetensors": "a name given twice is ambiguous",
    "key_duplicate_covering.safetensors": "a name given twice is ambiguous",
    "metadata_key_twice.safetensors": "a key given twice is ambiguous",
    "info_is_array.safetensors": "the format says an object",
    "shape_1000_dims.safetensors": "at most 64 dimensions",
    "metadata_null.safetensors": "the format says a map",
}
OVERHEAD = 64 << 20  # bytes beyond the header that a refusal may take


def main():
    top = need_fixtures("safetensors", "bad")
    verdicts = [line.split("\t") for line in
                (top / "verdicts.tsv").read_text().splitlines()]
    asan = b"asan" in subprocess.run(["ldd", PROGRAM],
                                     stdout=subprocess.PIPE).stdout
    stricter = 0
    with folder() as tmp:
        store = new_store(tmp)
        for file, verdict, kind in verdicts:
            name = f"bad/{file}"
            p = run("import", top / file, f"{store}:{name}", ok=False)
            shown = run("ls", f"{store}:{name}", ok=False).returncode == 0
            if verdict == "accepts" and file not in STRICTER:
                equal(p.returncode, 0, f"{file} (accepted by the library): "
                                       f"{p.stderr.decode()}")
                check(shown, f"{file} is there")
                continue
            stricter += verdict == "accepts"
            text = one_sentence(p, file)
            equal(p.returncode, 1, f"{file} exit code")
            check("safetensors" in text, f"{file}: says which file: {text}")
            check(not shown, f"{file} left nothing visible")
        equal(sorted(STRICTER), sorted(
            f for f, v, _ in verdicts if f in STRICTER and v == "accepts"),
            "the stricter list names accepted files only")
        equal(os.listdir(store / "staging"), [], "nothing is left in staging")
        check(b"no damage" in run("check", "--full", store).stdout,
              "check --full is clean")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    if not asan:
        check(peak < OVERHEAD + (1 << 20),
              f"peak memory {peak >> 20} MiB, want under 64 MiB")
    print(len(verdicts), "files;", stricter, "refused that the library takes")
    done()


main()
