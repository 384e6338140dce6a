"""Copies of runs in another folder (`--out`), for runs that must not be written to."""

from collections.abc import Sequence
from pathlib import Path

from ropewalk.data.tokenizer import FILE_NAMES
from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.utils.files import check_writable
from ropewalk.utils.paths import as_path, copy

_OVERWRITTEN = ("config.json", "metrics.jsonl", *FILE_NAMES)  # on every evaluation
_COPIED_ONCE = ("results.jsonl", "commands.jsonl")  # then only appended to in the copy


class Copies:
    """Copies of runs and sweeps in another folder, with the files that a report reads.

    Attributes:
      roots: the copy of each path: `out` itself for one path, `out`/NAME for several.

    Raises:
      ValueError: if `out` cannot be written to, is one of the paths or holds copies of other runs,
        or if two paths have the same name.
    """

    def __init__(self, paths: Sequence[str | Path], out: str | Path):
        out, sources = as_path(out), [as_path(path) for path in paths]
        names = [path.resolve().name for path in sources]
        self.roots = [out] if len(sources) == 1 else [out / name for name in names]
        self._places: dict[Path, RunDirectory] = {}
        self._sweeps: dict[Path, Path] = {}
        for path, root in zip(sources, self.roots, strict=True):
            if root.resolve() == path.resolve():
                raise ValueError(f"--out {out} is the evaluated directory; leave --out away")
            if self.roots.count(root) > 1:
                raise ValueError(
                    f"two directories are called {root.name}; evaluate each with its own --out"
                )
            self._sweeps[path / "sweep.json"] = root / "sweep.json"
            _check_same(path / "config.json", root / "config.json")
            for run in find_runs([path]):
                target_run = RunDirectory(root / run.path.relative_to(path))
                self._places.setdefault(run.path.resolve(), target_run)
                _check_same(run.path / "config.json", target_run.path / "config.json")
        for source, target in self._sweeps.items():
            _check_same(source, target)
        check_writable(out, "give another --out DIR")

    def copy(self, run: RunDirectory) -> RunDirectory:
        """Copy a run's files that a report reads; return the copy, which gets its rows."""
        target_run = self._places[run.path.resolve()]
        target_run.path.mkdir(parents=True, exist_ok=True)
        missing = [name for name in _COPIED_ONCE if not (target_run.path / name).exists()]
        files = {run.path / name: target_run.path / name for name in (*_OVERWRITTEN, *missing)}
        for source, target in (self._sweeps | files).items():
            if source.exists():
                copy(source, target)
        return target_run


def _check_same(source: Path, target: Path) -> None:
    if target.exists() and not (source.exists() and source.read_bytes() == target.read_bytes()):
        raise ValueError(f"{target} differs from {source}; give another --out DIR")
