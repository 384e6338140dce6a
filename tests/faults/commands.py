"""The commands into which faults are injected, and what they leave behind."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
_JSON = "metadata", "config.json"
_TIMED = "prepare.json", "progress.json"
_CLOCK = ("seconds", "tokens_per_second", "mfu", "date", "time", "git", "version")


class Case(NamedTuple):
    """A command that writes below a folder.

    Attributes:
      arguments: of the command; FOLDER, SHARED and RUN are replaced.
      modules: imported before the command is forked.
      needs: name of a shared run; the folder begins with a copy of it, as FOLDER/run.
    """

    arguments: str
    modules: tuple[str, ...]
    needs: str = ""


_TINY = "tiny data.prepared_root=SHARED/data train.num_steps=4 train.save_every=2 train.keep=9"
_TINY += " evals.tasks=[kv] evals.documents=4"
_SAVES = f"train.py {_TINY} train.num_steps=3 train.save_every=1"
_TRAIN = ("training.sweep",)
_EXPORT = (
    *("interop.export", "transformers.models.llama.modeling_llama", "transformers.generation"),
    "transformers.models.auto.modeling_auto",
)
CASES = {
    "save": Case("-m tests.faults.save FOLDER/run 3", ("experiment.checkpoint",), "unfinished"),
    "resume": Case(f"{_SAVES} --workdir FOLDER/run", _TRAIN, "unfinished"),
    "train": Case(f"train.py {_TINY} --workdir FOLDER/run", _TRAIN),
    "sweep": Case(f"sweep.py {_TINY} --workdir FOLDER/sweep model.rotary.base=10,99", _TRAIN),
    "prepare": Case(
        "-m data.prepare --source jsonl --path SHARED/text.jsonl --vocab-size 1000 --out FOLDER/d",
        ("data.prepare",),
    ),
    "evaluate": Case("evaluate.py FOLDER/run", ("evals.runner",), "run"),
    "report": Case("report.py RUN --out FOLDER/page.html", ("reporting.page",)),
    "probes": Case(
        "-m probes FOLDER/run --probes head_scores --documents 2", ("probes.__main__",), "run"
    ),
    "export": Case("-m interop export RUN FOLDER/exported", _EXPORT),
    "import": Case(
        "-m interop import SHARED/exported FOLDER/imported --no-compare", ("interop.importing",)
    ),
    "studies": Case(
        "-m studies run SHARED/study --workdir FOLDER/work --rows FOLDER/rows --seeds 0",
        ("studies.__main__",),
    ),
}


def prepare_shared(shared: Path, names: Sequence[str], run: Callable[[str], None]) -> None:
    """Make the run, text, exported folder and study that the named cases start from."""
    from tests.data.helpers import plain_text, write_jsonl
    from tests.studies.test_run import write_study

    write_jsonl(shared / "text.jsonl", [f"{i} {plain_text(i)} " * 9 for i in range(120)])
    write_study(shared / "study", shared / "data", steps=4)
    if {*names} & {"save", "resume"}:  # its last step is still to be made: one save
        run(f"{_SAVES} --workdir SHARED/unfinished")
        shutil.rmtree(shared / "unfinished/checkpoints/3")
    if {*names} & {"evaluate", "report", "probes", "export", "import"}:
        run(f"train.py {_TINY} --workdir SHARED/run")
        run("evaluate.py SHARED/run")
    if "import" in names:
        run("-m interop export SHARED/run SHARED/exported")


def fill(text: str, shared: Path, folder: Path) -> str:
    """Replace the names of folders in a command."""
    text = text.replace("RUN", "SHARED/run")
    return text.replace("FOLDER", str(folder)).replace("SHARED", str(shared))


def start(case: Case, shared: Path, folder: Path) -> None:
    """Make the folder as it is before the command; a mounted folder is kept."""
    if not os.path.ismount(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    if case.needs:
        shutil.copytree(shared / case.needs, folder / "run")


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of every file that two executions of a command must share.

    Dates, rates and lists of commands are left out; names that contain hashes are shortened, and
    arrays are compared by the digests in their checkpoint.
    """
    digests: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or path.name in ("commands.jsonl", ".lock", "workers.log", "lock"):
            continue
        if path.name.endswith(".content.json"):  # times of the input files
            continue
        name = re.sub(r"[0-9a-f]{20,}", "HASH", name)
        if name.endswith(("/HASH", ".ocdbt", "_METADATA", "_sharding")):
            digests[name] = ""
        else:
            digests[name] = _digest(path, folder)
    return digests


def _digest(path: Path, folder: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".jsonl" or path.name in _JSON:
        parts = content.splitlines() if path.suffix == ".jsonl" else [content]
        values = [_without_clock(json.loads(part)) for part in parts]
        content = json.dumps(values, sort_keys=True).encode()
    # Pages and archives have dates; the others times and their digest.
    if path.suffix in (".html", ".npz", ".gz") or path.name in _TIMED:
        return ""
    return hashlib.sha256(content.replace(str(folder).encode(), b"FOLDER")).hexdigest()


def _without_clock(value):
    if isinstance(value, dict):
        return {k: _without_clock(v) for k, v in value.items() if k not in _CLOCK}
    return [_without_clock(v) for v in value] if isinstance(value, list) else value
