"""The safetensors files of a folder: written a shard at a time, read a tensor at a time.

A pickle (`pytorch_model.bin`, `*.pt`, `*.pth`) can run code when it is loaded, and never is.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from experiment.records import parse_json
from utils.messages import one_line, quoted

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
SHARD_BYTES = 2**30
# By their names in a file's header. Others are quantized, and are no numbers by themselves.
DTYPES: dict[str, np.dtype] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class Tensor(NamedTuple):
    """Shape and dtype of a tensor, known before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Spec(NamedTuple):
    """Name and size of a tensor, known before it is written."""

    name: str
    num_bytes: int


def write(
    folder: Path,
    specs: Iterable[Spec],
    tensors: Iterator[tuple[str, np.ndarray]],
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes tensors, in the order of `specs`, into files of about `shard_bytes` each.

    No more than one file's tensors are in memory at once, beside what `tensors` holds.
    """
    shards: list[list[Spec]] = [[]]
    for spec in specs:
        if shards[-1] and sum(s.num_bytes for s in shards[-1]) + spec.num_bytes > shard_bytes:
            shards.append([])
        shards[-1].append(spec)
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        shard_tensors = {}
        for spec in shard:
            name, tensor = next(tensors)
            assert (name, tensor.nbytes) == tuple(spec)
            shard_tensors[name] = np.ascontiguousarray(tensor)
        save_file(shard_tensors, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(shard_tensors, file)
        del shard_tensors
    if len(shards) > 1:
        total = sum(spec.num_bytes for shard in shards for spec in shard)
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


class Tensors:
    """The tensors of a folder; files are memory-mapped, and nothing is read before it is asked for.

    Attributes:
      known: what is there, by name.

    Raises:
      ValueError: naming the file that is missing, pickled or not what it should be.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ValueError(f"{folder} is no folder; give one with config.json and *.safetensors")
        self._where = self._find()
        headers = {file: _look_into(file) for file in sorted(set(self._where.values()))}
        self.known = {name: headers[file][name] for name, file in self._where.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor, copied out of its file."""
        # Opened anew: what stays mapped stays in memory once it has been read.
        with _one_line(self._where[name]), _opened(self._where[name]) as file:
            return file.get_tensor(name)

    def _find(self) -> dict[str, Path]:
        """The file of each tensor."""
        if (self.folder / INDEX).exists():
            index = self._read_index()
            missing = [
                file_name
                for file_name in set(index.values())
                if not (self.folder / file_name).exists()
            ]
            if missing:
                raise ValueError(
                    f"{self.folder}: {min(missing)} is missing, which {INDEX} names; the download "
                    "is not whole"
                )
            files = sorted({self.folder / file for file in index.values()})
            names_by_file = {file: set(_keys(file)) for file in files}
            for name, file in index.items():
                if name not in names_by_file[self.folder / file]:
                    raise ValueError(
                        f"{self.folder / file} lacks {quoted(name)}, which {INDEX} names"
                    )
            return {name: self.folder / file for name, file in index.items()}
        files = sorted(self.folder.glob("*.safetensors"))
        if (self.folder / SINGLE).exists():
            files = [self.folder / SINGLE]
        if not files:
            pickles = sorted(file for kind in _PICKLES for file in self.folder.glob(kind))
            if pickles:
                raise ValueError(
                    f"{pickles[0]} is a pickle, which can run code and is never loaded; take the "
                    "model's safetensors files, or convert it where you trust it"
                )
            raise ValueError(f"{self.folder} has no *.safetensors")
        if len(files) > 1:
            raise ValueError(f"{self.folder} has {len(files)} *.safetensors and no {INDEX}")
        return {name: file for file in files for name in _keys(file)}

    def _read_index(self) -> dict[str, str]:
        try:
            where = parse_json((self.folder / INDEX).read_bytes())["weight_map"]
            assert isinstance(where, dict)
            # A file that came with somebody's model must not lead out of its folder.
            assert all(isinstance(file, str) and Path(file).name == file for file in where.values())
            return where
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.folder / INDEX} is damaged (no weight_map of names to files beside it)"
            ) from error


def digest(tensors: Tensors, names: Iterable[str]) -> str:
    """Return the SHA-256 of some tensors: of their names, shapes, dtypes and bytes.

    One tensor is in memory at a time.

    Raises:
      ValueError: naming a tensor that holds NaN or infinity.
    """
    total = hashlib.sha256()
    for name in sorted(names):
        tensor = tensors.read(name)
        if bad := tensor.size - np.count_nonzero(np.isfinite(tensor)):
            raise ValueError(
                f"{tensors.folder}: {quoted(name)} has {bad:,} values that are NaN or infinite; "
                "fetch the file again, or convert it anew"
            )
        total.update(json.dumps([name, tensor.shape, tensor.dtype.name]).encode())
        total.update(np.ascontiguousarray(tensor).view(np.uint8).data)
    return total.hexdigest()


def _keys(file: Path) -> list[str]:
    with _one_line(file), _opened(file) as opened:
        return list(opened.keys())


def _look_into(file: Path) -> dict[str, Tensor]:
    """Return the shapes and dtypes that a file's header gives."""
    with _one_line(file), _opened(file) as opened:
        names = list(opened.keys())
        slices = {name: opened.get_slice(name) for name in names}
        headers = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    for name, (_, kind) in headers.items():
        if kind not in DTYPES:
            raise ValueError(
                f"{file}: {quoted(name)} is {kind}; tensors must be {', '.join(DTYPES)}: "
                "dequantize the model first"
            )
    return {name: Tensor(shape, DTYPES[kind]) for name, (shape, kind) in headers.items()}


def _opened(file: Path) -> Any:
    return safe_open(str(file), framework="np")


@contextlib.contextmanager
def _one_line(file: Path) -> Iterator[None]:
    """Raise a ValueError for a file that is damaged, and another for one that cannot be read."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{file} could not be read ({one_line(str(error), 80)})") from error
    except SafetensorError as error:
        raise ValueError(
            f"{file} is damaged or cut short ({one_line(str(error), 80)}); fetch it again"
        ) from error
