"""A run directory: the files of a run."""

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import json
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from os.path import abspath
from pathlib import Path
from typing import Any

from ropewalk.data import chat
from ropewalk.data.config import DataConfig
from ropewalk.data.tokenizer import Tokenizer, file_in
from ropewalk.experiment import stages
from ropewalk.experiment.config import (
    ExperimentConfig,
    config_digest,
    first_difference,
    from_dict,
    to_dict,
)
from ropewalk.experiment.records import METRICS, read_json_lines, read_sweep
from ropewalk.utils.checks import problem
from ropewalk.utils.command_line import requote
from ropewalk.utils.files import check_links, write_atomically
from ropewalk.utils.git import current_commit
from ropewalk.utils.limits import read_json
from ropewalk.utils.locks import lock
from ropewalk.utils.manifest import DamagedError, digest, hash_file
from ropewalk.utils.messages import print_note
from ropewalk.utils.paths import as_path, copy, in_bucket

# Folder of an imported run, and of those that start from it: tokenizer files, as published.
PUBLISHED = "published"
# Folders of a run that commands write into.
_FOLDERS = ("checkpoints", "held_out", PUBLISHED, "probes", "profile", "tensorboard", "wandb")


class RunDirectory:
    """One run.

    Attributes:
      path: the directory, on a disk or in a bucket, with config.json.
      checkpoints_path: folder of the checkpoints, `<step>/`.
      tokenizer_path: tokenizer of the run, `tokenizer.model` or `.json`.
      held_out_path: store of held-out documents, if the source differs by machine.
      metrics_path: one JSON object per logged step.
      results_path: one JSON object per evaluated answer; see `evals.rows`.
      commands_path: the shell lines that trained and evaluated the run.
    """

    def __init__(self, path: str | Path):
        """Raise ValueError if orbax cannot keep checkpoints at `path`."""
        self.path = as_path(path)
        self.checkpoints_path = self.path / "checkpoints"
        self.held_out_path = self.path / "held_out"
        self.metrics_path = self.path / "metrics.jsonl"
        self.results_path = self.path / "results.jsonl"
        self.commands_path = self.path / "commands.jsonl"
        pattern = set("*?[]") & set(str(self.path))
        if pattern:
            raise ValueError(
                f"{path}: orbax takes {''.join(sorted(pattern))} in a path for a pattern and would "
                "not find its checkpoints; use another directory"
            )

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def tokenizer_path(self) -> Path:  # noqa: D102 - among the attributes
        return file_in(self.path)

    @property
    def name(self) -> str:
        """Name of the directory; in a sweep, the varying values."""
        return self.path.resolve().name

    @functools.cached_property
    def config(self) -> ExperimentConfig:
        """The config at the start: the first stage, and the list of stages.

        Raises:
          ValueError: if config.json is missing, damaged, or not a config of this code.
        """
        return self._read_config("config")

    def _read_config(self, name: str) -> ExperimentConfig:
        record = self.record
        try:
            return from_dict(record[name])
        except (KeyError, TypeError, ValueError) as error:
            reason = f"lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{self.path / 'config.json'}: {reason}") from error

    def config_at(self, step: int) -> ExperimentConfig:
        """Return the config at update number `step`, as of a run without stages.

        The last checkpoint of a stage belongs to the stage. Raises ValueError as `config` does.
        """
        return stages.stage_at(self.config, step).config

    def positions_at(self, step: int) -> list[dict[str, Any]]:
        """Return the positions of the updates that made the parameters of `step`.

        One JSON object per stage, oldest first, with those of the runs it started from: num_steps
        (updates so far), context_length (tokens), rotary (an expression), window.
        """
        return [*self.record.get("parents", []), *stages.positions(self.config, step)]

    @functools.cached_property
    def record(self) -> dict[str, Any]:
        """The content of config.json: config, overrides, and parents of a run with `start_from`.

        Raises:
          ValueError: if it is missing or damaged.
        """
        if not self.is_started():
            raise ValueError(f"{self.path} is not a run directory: it has no config.json")
        path = self.path / "config.json"
        try:
            record = read_json(path)
            # config.json may be a copy of a checkpoint's item `config`.
            record = record.get("run", record)
            record.setdefault("overrides", [])
            lists = [tuple(record.get(x, ())) for x in ("overrides", "held_out", "trained_on")]
            objects = record["config"], record.get("published", {})
            if not all(isinstance(x, dict) for x in objects) or problem(
                sum(lists, ()), tuple[str, ...]
            ):
                raise TypeError
            return record
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is damaged (no JSON object with a config); {self._config_advice()}"
            ) from error

    def is_started(self) -> bool:
        """Return whether there is a run here. Raises ValueError if it has lost its config.json."""
        exists = (self.path / "config.json").exists()
        if not exists and self.steps():
            raise ValueError(
                f"{self.path} has checkpoints but no config.json; {self._config_advice()}"
            )
        return exists

    def _config_advice(self) -> str:
        advice = f"delete {self.path} and start again"
        if steps := self.steps():
            return f"copy checkpoints/{steps[-1]}/config/metadata to config.json there, or {advice}"
        return advice

    @property
    def tokenizer_sha256(self) -> str | None:
        """sha256 of the tokenizer's file as written; None if there is no tokenizer."""
        return self.record.get("tokenizer")

    @property
    def config_digest(self) -> str:
        """The part of the identity (`experiment.identity`) that config.json decides."""
        return config_digest(self.config, self.tokenizer_sha256)

    @property
    def held_out_fingerprints(self) -> tuple[str, ...]:
        """Fingerprints of the held-out texts of the stages; empty if the run has not kept them."""
        return tuple(self.record.get("held_out", ()))

    def refuse_other_texts(self, known: Sequence[str] | None, texts: Iterable[str]) -> None:
        """Raise ValueError for a fingerprint of a text that is not among the known ones, if any."""
        if known and (new := set(texts).difference(known)):
            paths = (stage.config.data.path or "the source" for stage in stages.split(self.config))
            raise ValueError(
                f"{self.path} was trained on other data (fingerprint {known[0][:12]}, now "
                f"{min(new)[:12]}); restore the content of {' or '.join(dict.fromkeys(paths))}, "
                "train on with the version of ropewalk that began it, or use a new --workdir"
            )

    @property
    def published_path(self) -> Path | None:
        """Folder of the published files of the tokenizer; None for a run with no imported one.

        Raises:
          ValueError: naming a file that is not what was imported.
        """
        folder = self.path / PUBLISHED
        files = _hash_files(folder)
        imported = self.record.get("published", files)
        for name in sorted(files | imported):
            if files.get(name) != imported.get(name):
                raise ValueError(
                    f"{folder / name} is not what was imported; put back a copy of the file, or "
                    "import the model again"
                )
        return folder if files else None

    @property
    def origin(self) -> dict[str, Any] | None:
        """`name`, `config` and `context` (tokens) of the model that was imported as this run, or
        as one that it started from; None for others."""
        return self.record.get("imported") or self.record.get("origin")

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the run was trained with.

        Raises:
          ValueError: if it was trained on no text, or the file is not the one that was written.
        """
        published = self.published_path
        try:
            return Tokenizer(
                self.tokenizer_path,
                sha256=self.tokenizer_sha256,
                chat_template=published and chat.read_template(published),
                stop_ids=chat.read_stop_ids(published) if published else (),
            )
        except DamagedError as error:
            raise ValueError(
                f"{error.what}; delete it, and the command that trained the run writes it again"
            ) from None

    def with_own_tokenizer(self, data: DataConfig) -> DataConfig:
        """Return `data` with this run's copy of its tokenizer, if the file that it names is gone.

        A child's is often its parent's file, and parents are deleted.
        """
        path = self.tokenizer_path
        if data.tokenizer is None or as_path(data.tokenizer).exists() or not path.exists():
            return data
        return dataclasses.replace(data, tokenizer=str(path))

    def write_config(
        self,
        config: ExperimentConfig,
        overrides: Sequence[str],
        tokenizer_sha256: str | None = None,
        **origin: Any,
    ) -> None:
        """Create the directory with its config.json, which records `overrides` and `origin`.

        The config of the run that `config.start_from` names, its positional settings, and what
        it keeps of an import are copied into it.
        """
        record: dict[str, Any] = {**origin, "overrides": list(overrides)}
        if tokenizer_sha256:
            record["tokenizer"] = tokenizer_sha256
        if config.start_from:
            parent, step = find_start(config.start_from)
            record["parents"] = parent.positions_at(step)
            record["parent"] = to_dict(parent.config_at(step))
            if model := parent.origin:
                record["origin"] = {name: model[name] for name in ("name", "config", "context")}
            files = parent.published_path
            if files and parent.tokenizer_sha256 == tokenizer_sha256:
                copy(files, self.path / PUBLISHED)
        if files := _hash_files(self.path / PUBLISHED):
            record["published"] = files
        record["config"] = to_dict(config)
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "config.json", json.dumps(record, indent=2) + "\n")

    def record_command(self, command: str) -> None:
        """Add a shell line with date, commit and versions to commands.jsonl unless it is there."""
        with lock(self.path / f".{self.commands_path.name}.lock"):
            rows = self._read_commands()
            if command not in [row["command"] for row in rows]:
                names = "jax", "jaxlib", "flax", "optax", "numpy"
                versions = {name: importlib.metadata.version(name) for name in names}
                versions["python"] = platform.python_version()
                date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
                row = {"command": command, "date": date, "commit": current_commit()}
                rows.append(row | {"versions": versions})
                seal = {"file": self.bind(rows)}
                lines = [json.dumps(row | seal) + "\n" for row in rows]
                write_atomically(self.commands_path, "".join(lines))

    def bind(self, content: Any) -> str:
        """Return a digest of the JSON content of a file, and of this run's config."""
        return digest([self.config_digest, self.record["overrides"], content])[:16]

    def _read_commands(self) -> list[dict[str, Any]]:
        """Return the rows of commands.jsonl; raise ValueError unless they were written here."""
        path, rows = self.commands_path, read_json_lines(self.commands_path, {"command": str})
        written = [row.pop("file", None) for row in rows]
        if rows and not any(written):
            print_note(None, f"{path}: no digest (an older file); changes cannot be noticed")
        elif written != [self.bind(rows)] * len(rows):
            raise ValueError(
                f"{path} is not what was written for this run; restore a copy, or delete it: "
                "then a page shows the command that is equal to config.json"
            )
        return rows

    def read_commands(self) -> list[str]:
        """Return the shell lines that trained and evaluated the run, oldest first."""
        rows = self._read_commands()
        return [line for row in rows if (line := requote(row["command"]))]

    def pinned(self, config: ExperimentConfig) -> ExperimentConfig:
        """Return `config` with the step in its `start_from`, wherever the parent is by now.

        Raises:
          ValueError: as `find_start` does.
        """
        if config.start_from is None:
            return config
        return dataclasses.replace(config, start_from=self.pin(config.start_from))

    def pin(self, start_from: str) -> str:
        """Return `start_from` as DIR@STEP; a started run keeps the one that it started from.

        That is the same run however its path is spelled, from any folder.

        Raises:
          ValueError: as `find_start` does.
        """
        # Else a parent that trains on would give its child other parameters at every resume.
        start = self.config.start_from if self.is_started() else None
        if start:
            (path, step), (old_path, old_step) = split_start(start_from), split_start(start)
            if abspath(start_from) in map(abspath, (start, old_path)):
                return start  # the parent may be gone
            if old_step is not None and step in (None, old_step):
                config = find_run(path).config_at(old_step)
                if not first_difference(self.parent_config, config):
                    return start
        parent, step = find_start(start_from)
        return f"{parent.path}@{step}"

    @property
    def parent_config(self) -> ExperimentConfig:
        """Config of the run that this one started from, in force at that step.

        Raises:
          ValueError: if config.json has none.
        """
        return self._read_config("parent")

    def check_resumable(self, config: ExperimentConfig, start: Path | None = None) -> None:
        """Raise ValueError if the directory holds a sweep or, naming the field, another run.

        A link is refused in the place of a folder that training writes into. `start` is what a
        longer training starts from, the sweep of a member; None: this run.
        """
        check_links(self.path, _FOLDERS)
        if (self.path / "sweep.json").exists():
            raise ValueError(
                f"{self.path} holds a sweep; use another --workdir, or sweep.py to continue it"
            )
        if not self.is_started():
            return
        if difference := first_difference(self.config, config):
            name, old, new = difference
            advice = "use another --workdir, or delete that directory"
            if name == "train.num_steps" and new > old:
                start = start or self.path
                advice = f"to train it longer use another --workdir with start_from={start}"
            raise ValueError(
                f"{self.path} holds a run with {name}={old}, and this one has {name}={new}; "
                f"{advice}"
            )

    def steps(self) -> list[int]:
        """Return the steps of the finished checkpoints, ascending."""
        if not self.checkpoints_path.is_dir():
            return []
        # Orbax renames a finished checkpoint; names of unfinished ones are no numbers.
        names = [p.name for p in self.checkpoints_path.iterdir()]
        steps = [int(name) for name in names if re.fullmatch("[0-9]{1,10}", name)]
        return sorted(s for s in steps if not in_bucket(self.path) or self.is_complete(s))

    def is_complete(self, step: int) -> bool:
        """Return whether a checkpoint in a bucket, which has no rename, was written to its end.

        Orbax writes a file last.
        """
        try:
            mark = self.checkpoints_path / str(step) / "commit_success.txt"
            return bool(mark.read_bytes())
        except FileNotFoundError:
            return False

    @property
    def is_finished(self) -> bool:
        """Whether the run has reached its last step, or was stopped early in its last stage."""
        return max(self.steps(), default=0) >= self.ends[-1]

    @property
    def ends(self) -> list[int]:
        """The step at which each stage ends, or was stopped early."""
        return [
            next((step for step in self.stops if stage.start < step <= stage.end), stage.end)
            for stage in stages.split(self.config)
        ]

    @property
    def stops(self) -> tuple[int, ...]:
        """The steps at which `train.stop_after` stopped stages, by the newest checkpoint."""
        steps = self.steps() if self.is_started() else []
        if steps and any(stage.config.train.stop_after for stage in stages.split(self.config)):
            with contextlib.suppress(AttributeError, KeyError, OSError, TypeError, ValueError):
                item = read_json(self.checkpoints_path / f"{steps[-1]}" / "data" / "metadata")
                return tuple(map(int, item["validation"].get("stops", ())))
        return ()  # a reader of its arrays reports a damaged checkpoint

    def find_step(self, step: int | None = None) -> int:
        """Return `step`, or the newest for None; raise ValueError if it has no checkpoint."""
        steps = self.steps()
        if not steps:
            raise ValueError(f"{self.path} has no checkpoint; train it first")
        if step is not None and step not in steps:
            raise ValueError(f"{self.path} has no checkpoint of step {step}; it has {steps}")
        return steps[-1] if step is None else step

    @property
    def unfinished(self) -> str:
        """`241 of 1,000 steps` for a run that has not reached its last step; else empty.

        An imported run, whose only step is 0, is as it was published.
        """
        steps, end = self.steps(), stages.split(self.config)[-1].end
        early = ", stopped early" * self.is_finished
        return f"{steps[-1]:,} of {end:,} steps{early}" if steps and 0 < steps[-1] < end else ""

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl."""
        return read_json_lines(self.metrics_path, METRICS)

    @functools.cached_property
    def diverged_at(self) -> int | None:
        """The first of the updates skipped in a row at the end of a run; None if it is not over.

        A run is over if it was frozen (`train.max_skipped`) or reached its last step.
        """
        last = (self.read_metrics() or [{}])[-1]
        count = last.get("skipped")
        if not count or not isinstance(count, int):
            return None
        is_end = last["step"] == stages.split(self.config)[-1].end
        is_over = is_end or count >= self.config.train.max_skipped
        return last["step"] - count + 1 if is_over else None


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file in a folder by its name; none if there is no folder."""
    return {path.name: hash_file(path) for path in folder.iterdir()} if folder.is_dir() else {}


Notice = Callable[[str], None]


def find_runs(
    paths: Iterable[str | Path], notice: Notice = lambda line: None
) -> list[RunDirectory]:
    """Return run directories.

    Args:
      paths: each is a run or a sweep.
      notice: called with one line for each sweep that lacks members, which are left out.

    Raises:
      ValueError: if a path is neither, or a sweep lacks all members.
    """
    runs = []
    for path in map(as_path, paths):
        is_run, is_sweep = RunDirectory(path).is_started(), (path / "sweep.json").exists()
        if is_run:
            if is_sweep:
                raise ValueError(
                    f"{path} holds both a run and a sweep; move sweep.json and the members that it "
                    "names to another directory"
                )
            check_links(path, _FOLDERS)
            runs.append(RunDirectory(path))
            continue
        if not is_sweep:
            missing = "is neither a run (config.json) nor a sweep directory (sweep.json)"
            files = [*path.glob("*/config.json"), *path.glob("*/sweep.json")]
            names = ", ".join(sorted(str(file.parent) for file in files))
            missing += f"; name those in it: {names}" if names else ""
            raise ValueError(f"{path} {missing if path.exists() else 'does not exist'}")
        record = read_sweep(path)
        names = record.members
        check_links(path, [*names, *(f"{name}/{folder}" for name in names for folder in _FOLDERS)])
        members = [RunDirectory(path / name) for name in names]
        started = [run for run in members if run.is_started()]
        for run, config_id in zip(members, record.configs, strict=False):  # older files have none
            if run in started and config_digest(run.config, None) != config_id:
                raise ValueError(
                    f"{run.path} is not the member that {path}/sweep.json names: another config or "
                    "seed; put back a copy of either, or name the runs instead of the sweep"
                )
        absent = ", ".join(run.path.name for run in members if run not in started)
        if not started:
            raise ValueError(
                f"{path}/sweep.json names the member {members[0].path.name}, which is not there; "
                "run the same sweep.py command again to make it"
            )
        if absent:
            notice(f"{path}: left out, because not there: {absent}; sweep.py would train it again")
        runs += started
    return runs


def find_trained(
    paths: Iterable[str | Path], notice: Notice = lambda line: None
) -> list[RunDirectory]:
    """Return `find_runs` without runs that have no checkpoint, for each of which it calls `notice`.

    Raises:
      ValueError: as `find_runs`, or if no run has a checkpoint.
    """
    runs = find_runs(paths, notice)
    trained = [run for run in runs if run.steps()]
    if not trained:
        runs[0].find_step()
    for run in runs:
        if run not in trained:
            notice(f"{run.path}: left out, because it has no checkpoint")
    return trained


def find_run(path: str | Path) -> RunDirectory:
    """Return the run at `path`.

    Raises:
      ValueError: if there is none, or a sweep: one of its members must be chosen.
    """
    path = as_path(path)
    if (path / "sweep.json").exists():
        members = ", ".join(read_sweep(path).members)
        raise ValueError(f"{path} is a sweep; name one of its members: {members}")
    (run,) = find_runs([path])
    return run


def split_start(start_from: str) -> tuple[str, int | None]:
    """Return the path and the step of `start_from`: `DIR` (None) or `DIR@STEP`."""
    path, _, step = start_from.rpartition("@")
    return (path, int(step)) if path and step.isdecimal() else (start_from, None)


def find_start(start_from: str) -> tuple[RunDirectory, int]:
    """Return the run and step of `start_from`: `DIR` (its newest checkpoint) or `DIR@STEP`.

    Raises:
      ValueError: if there is no such run or checkpoint.
    """
    path, step = split_start(start_from)
    run = find_run(path)
    return run, run.find_step(step)


def common_steps(runs: Iterable[RunDirectory]) -> list[int]:
    """Return the steps at which all of `runs` have a checkpoint, ascending.

    A step that only some members of a sweep have saved does not count.
    """
    return sorted(set.intersection(*(set(run.steps()) for run in runs)))


def newest_steps(runs: Iterable[RunDirectory], notice: Notice) -> dict[RunDirectory, int]:
    """Return the step to compare each of `runs` at: the newest of those that have a checkpoint.

    Members of a sweep that was interrupted, between the saves of two members perhaps, are compared
    at the newest step that they have in common. `notice` is called with one line for each sweep of
    several newest steps.
    """
    newest = {run: run.find_step() for run in runs}
    sweeps: dict[Path, list[RunDirectory]] = {}
    for run in newest:
        folder = run.path.absolute().parent
        if run.diverged_at is None and (folder / "sweep.json").exists():
            sweeps.setdefault(folder, []).append(run)
    for folder, members in sweeps.items():
        if len({newest[run] for run in members}) < 2 or all(run.is_finished for run in members):
            continue
        names = ", ".join(f"{run.name} {newest[run]:,}" for run in members)
        if common := common_steps(members):
            newest |= dict.fromkeys(members, common[-1])
            choice = f"step {common[-1]:,} is used, the newest that all have; or give --step"
        else:
            choice = "no step is there in all, so the newest of each is used"
        notice(f"{folder}: members have other newest steps ({names}); {choice}")
    return newest


def find_pruned(runs: Iterable[RunDirectory], steps: Sequence[int]) -> RunDirectory | None:
    """Return the first run without an optimizer state at any of its `steps`; None if there is none.

    `ropewalk runs prune --optimizer` leaves parameters only, and so do the runs of the notebooks.
    """
    for run in runs if steps else ():
        if not any((run.checkpoints_path / str(step) / "opt_state").exists() for step in steps):
            return run
    return None
