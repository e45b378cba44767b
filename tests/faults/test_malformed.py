"""Malformed configurations and studies: one expected line each, a non-zero exit, nothing written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import Workspace
from tests.pipeline.study.test_validation import CONFIG_CASES, STUDY, STUDY_CASES

CONFIG = "config.yaml"
BILLION = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))])

# Unlikely contents of files: whole files, and the expected line.
FILES: dict[str, tuple[str, bytes, str]] = {
    "an empty study": (STUDY, b"", "the file must hold named fields"),
    "a study of bytes": (STUDY, b"\x00\xff\xfe", "not UTF-8 text"),
    "a control character": (STUDY, b"title: \x07\n", "character 7: special characters are not allowed"),
    "a tab for spaces": (STUDY, b"data:\n\tsource: digits\n", "line 2: "),
    "a list as a name": (STUDY, b"? [a, b]\n: 1\n", "line 1: "),
    "a mapping as a name": (STUDY, b"{{a: b}: 1}\n", "line 1: "),
    "an object of Python": (
        STUDY,
        b"title: !!python/object/apply:os.system [touch broken]\n",
        "line 1: could not deter",
    ),
    "a value that holds itself": (STUDY, b"title: &t [*t]\n", "holds itself"),
    "values that double": (STUDY, BILLION.encode(), "more than 1000000 values, counting each alias"),
    "a thousand brackets": (STUDY, b"title: " + 1000 * b"[", "nested too deeply"),
    "no such day": (STUDY, b"title: 2020-02-30\n", "day is out of range"),
    "an alias of nothing": (STUDY, b"title: *nothing\n", "line 1: found undefined alias"),
    "two documents": (STUDY, b"title: a\n---\ntitle: b\n", "line 2: "),
    "a number for a title": (STUDY, b"title: 3\n", "title: "),
    "a number beyond all counts": (
        STUDY,
        b"seeds: [1" + 400 * b"0" + b"]\n",
        "line 1: seeds.0: an integer of more than",
    ),
    "a fraction beyond all counts": (STUDY, b"title: 1" + 400 * b"0" + b"/3\n", "line 1: an integer of more than"),
    "a tag of no truth value": (STUDY, b"title: !!bool maybe\n", "a value is not of the kind that its tag (!!) names"),
    "a tag of no time": (STUDY, b"title: !!timestamp x\n", "a value is not of the kind that its tag (!!) names"),
    "a tag of no number": (STUDY, b'title: !!int ""\n', "a value is not of the kind that its tag (!!) names"),
    "half a character": (STUDY, b'title: "\\uD800"\n', "line 1: title: a text that is not UTF-8"),
    "250 brackets": (STUDY, b"title: " + 250 * b"[" + 250 * b"]", "a value is nested too deeply"),
    "a number as text": (
        CONFIG,
        b'study: smoke\ngpus_per_job: "1"\n',
        "gpus_per_job: '1' is another kind of value; write 1 without quotes",
    ),
    "a date for a number": (CONFIG, b"study: smoke\nseeds_per_job: 2020-01-01\n", "seeds_per_job: input should be"),
    "a field without a name": (STUDY, b"~: 3\n", "unknown field"),
    "a field called after a number": (STUDY, b"3: 3\n", "3: unknown field"),
    "a configuration of bytes": (CONFIG, b"\x00\xff\xfe", "not UTF-8 text"),
    "a configuration with a field twice": (CONFIG, b"study: smoke\nstudy: digits\n", "line 2: 'study' appears twice"),
    "a configuration without a study": (CONFIG, b"device: cpu\n", "study: the field is missing"),
    "a list for a store": (CONFIG, b"study: smoke\nstore: [a]\n", "store: input should be a valid string"),
    "no store": (CONFIG, b"study: smoke\nstore:\n", "store: input should be a valid string, not None"),
    "a study by a number": (CONFIG, b"study: 3\n", "study: input should be a valid string, not 3"),
}

# Forks for each case, so that the package is imported once: [code, output, error] of `robustfeatures status`.
DRIVER = """
import json, os, sys, tempfile
from pathlib import Path
from robustfeatures import cli
from robustfeatures.pipeline.plan import plan
from robustfeatures.tools import status
found = []
for name, content in json.load(sys.stdin):
    path = Path(name)
    whole = path.read_bytes()
    path.write_bytes(bytes.fromhex(content))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(error.fileno(), 2)
            sys.argv = ["robustfeatures", "status"]
            cli.main()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, error):
            file.seek(0)
            texts.append(file.read().decode())
    path.write_bytes(whole)
    found.append([code, *texts])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_malformed_files(workspace: Workspace) -> None:
    files = dict(FILES)
    for where, cases in ((STUDY, STUDY_CASES), (CONFIG, CONFIG_CASES)):
        text = (workspace.folder / where).read_text()
        for name, (old, new, expected) in cases.items():
            assert old in text
            files[f"{where}: {name}"] = (where, text.replace(old, new).encode() if old else b"- a list\n", expected)
    before = sorted(path for path in workspace.folder.rglob("*") if "__pycache__" not in path.parts)
    asked = [[where, content.hex()] for where, content, _ in files.values()]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(asked),
        cwd=workspace.folder,
        env={"PYTHONPATH": str(workspace.folder / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    wrong = {
        name: (code, out, error)
        for (name, (where, _, expected)), (code, out, error) in zip(files.items(), json.loads(done.stdout), strict=True)
        if not (
            code == 1
            and out == ""
            and error.count("\n") == 1
            and error.startswith(f"robustfeatures: {where}: ")
            and expected in error
        )
    }
    print(f"{len(files) - len(wrong)} of {len(files)} malformed files refused with the expected line")
    assert not wrong
    assert len(files) >= 40
    assert sorted(path for path in workspace.folder.rglob("*") if "__pycache__" not in path.parts) == before
