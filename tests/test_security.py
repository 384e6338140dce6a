"""Promises of SECURITY.md: no code from files, no connections, hashes of packages."""

import ast
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_house import ROOT, SOURCES

NOTEBOOKS = [*(ROOT / "notebooks").rglob("*.py")]
# Calls that run code, or that read files without the limits of utils/limits.py, and the files that
# may make them.
CALLS = {
    "eval": [],
    "exec": ["utils/plugins.py"],  # of files that the command line names
    "os.system": [],
    "os.popen": [],
    "json.load": [],
    "np.load": ["utils/limits.py"],
    "numpy.load": [],
    "gzip.open": [],
    "gzip.decompress": [],
    "zlib.decompress": [],
    "zipfile.ZipFile": [],
    # Blocks of lines; our own values; reports of our own processes.
    "json.loads": [
        *("utils/limits.py", "evals/rows.py", "studies/capability/forecasts.py"),
    ],
}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "tarfile"}
FLAGS = {"shell", "allow_pickle"}


def violations(path: Path) -> list[str]:
    where = path.relative_to(ROOT).as_posix()
    problems = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names.append(getattr(node, "module", None) or "")
            problems += [f"{where} imports {n}" for n in names if n.partition(".")[0] in MODULES]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if where not in CALLS.get(name, [where]):
                problems.append(f"{where} calls {name}")
            problems += [
                f"{where} calls {name} with {keyword.arg}"
                for keyword in node.keywords
                if keyword.arg in FLAGS and ast.unparse(keyword.value) != "False"
            ]
    return problems


def test_no_call_runs_code_or_reads_without_limits():
    assert [text for path in [*SOURCES.values(), *NOTEBOOKS] for text in violations(path)] == []


def test_such_calls_are_detected(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "a.py"
    path.write_text(
        "import pickle\nfrom yaml import load\neval('1')\njson.load(f)\nrun('x', shell=True)\n"
    )
    assert len(violations(path)) == 5


LOCKS = ["requirements.lock", "notebooks/colab.lock", "notebooks/jupyter.lock"]


@pytest.mark.parametrize("name", [*LOCKS, "tests/published/requirements.txt"])
def test_every_package_of_a_lock_has_a_hash(name):
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
    assert lines
    for line in lines:
        assert re.match(r"\S+==\S+", line) and re.search(r"--hash=sha256:[0-9a-f]{64}\b", line), (
            line
        )


def test_locks_are_installed_by_hash():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [line for line in makefile.splitlines() if re.search(r"pip install .*-r ", line)]
    assert len(installs) > 3 and all("--require-hashes" in line for line in installs)


OUTSIDE = ("192.0.2.1", 9)  # of RFC 5737: nobody has it


def test_connections_beyond_this_machine_are_blocked(environment):
    """The guard of all tests, in this process and in those that tests start."""
    with socket.socket() as connection, pytest.raises(PermissionError):
        connection.connect(OUTSIDE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    code = f"import socket; socket.socket().connect({OUTSIDE})"
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert b"PermissionError" in process.stderr
