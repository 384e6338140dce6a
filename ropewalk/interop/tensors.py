"""Write safetensors files, one shard at a time, and read them, one tensor at a time.

Pickles (`pytorch_model.bin`, `*.pt`, `*.pth`) are never loaded, because that can run code.
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

from ropewalk.utils.limits import check_file, read_json
from ropewalk.utils.messages import one_line, quoted

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
SHARD_BYTES = 2**30
# By name in a file's header. Other dtypes are quantized.
DTYPES: dict[str, np.dtype] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
# Constants that older files store. They are ignored.
_CONSTANTS = ("rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias")


class Tensor(NamedTuple):
    """Shape and dtype of a tensor in a file's header."""

    shape: tuple[int, ...]
    dtype: np.dtype


def write_tensors(
    folder: Path, tensors: Iterable[tuple[str, np.ndarray]], shard_bytes: int = SHARD_BYTES
) -> None:
    """Write safetensors files of about `shard_bytes` each.

    One file's tensors are in memory at a time.

    Args:
      folder: folder of the files.
      tensors: names and tensors.
      shard_bytes: size of a file. A larger tensor has its own file.
    """
    shard: dict[str, np.ndarray] = {}
    weight_map: dict[str, int] = {}
    total = size = count = 0

    def write() -> None:
        file = folder / f"{count}.part"
        save_file(shard, file, metadata={"format": "pt"})
        file.chmod(0o644)  # safetensors makes files that only their owner can read

    for name, tensor in tensors:
        if shard and size + tensor.nbytes > shard_bytes:
            write()
            shard.clear()
            size, count = 0, count + 1
        shard[name], weight_map[name] = np.ascontiguousarray(tensor), count
        size, total = size + tensor.nbytes, total + tensor.nbytes
    write()
    names = [f"model-{n:05}-of-{count + 1:05}.safetensors" for n in range(1, count + 2)]
    names = names if count else [SINGLE]
    for number, name in enumerate(names):
        (folder / f"{number}.part").rename(folder / name)
    if count:
        files = {name: names[number] for name, number in weight_map.items()}
        index = {"metadata": {"total_size": total}, "weight_map": files}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _is_file_name(name: str) -> bool:
    """Return whether a name is a file's in a folder: it does not lead out of the folder."""
    return Path(name).name == name and len(name) < 100 and name.isprintable()


class Tensors:
    """The safetensors files of a folder, memory-mapped; tensors are read on request.

    Attributes:
      folder: the folder.
      known: shape and dtype of each tensor.

    Raises:
      ValueError: naming a file that is missing, a pickle, or damaged.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._files: dict[str, Path] = {}
        self.known: dict[str, Tensor] = {}
        # transformers reads this file first: an index beside it is of an older save.
        index = {} if (self.folder / SINGLE).exists() else self._read_index()
        files = [self.folder / name for name in sorted({*index.values()})] or [self._find_file()]
        for file in files:
            header = _read_header(file)
            names = [name for name in index if index[name] == file.name] or list(header)
            for name in (name for name in names if not name.endswith(_CONSTANTS)):
                if name not in header:
                    raise ValueError(f"{file} lacks {quoted(name)}, which {INDEX} lists")
                self._files[name], self.known[name] = file, header[name]

    def read(self, name: str) -> np.ndarray:
        """Return a copy of one tensor."""
        # The file is opened for each tensor: mapped pages that were read stay in memory.
        with _open(self._files[name]) as file:
            return file.get_tensor(name)

    def _find_file(self) -> Path:
        """Return the only file of a folder without an index."""
        single = self.folder / SINGLE
        files = [single] if single.exists() else sorted(self.folder.glob("*.safetensors"))
        if len(files) > 1:
            raise ValueError(
                f"{self.folder} has {len(files)} *.safetensors and no {INDEX}; download that too, "
                f"or keep the model's own file only, as {SINGLE}"
            )
        if not files:
            raise ValueError(
                f"{self.folder} has 0 *.safetensors and no {INDEX}. Pickles (*.bin, *.pt) can run "
                "code and are never loaded: where you trust them, write safetensors (transformers' "
                "from_pretrained, then save_pretrained)"
            )
        return files[0]

    def _read_index(self) -> dict[str, str]:
        """Return the file name of each tensor; empty without an index."""
        path = self.folder / INDEX
        if not path.exists():
            return {}
        try:
            index = read_json(path)["weight_map"]
            # A file that came with a model must not lead out of its folder.
            files = {*index.values()}
            if not files or not all(map(_is_file_name, files)):
                raise ValueError("a name that is not a file's")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is damaged (its weight_map must map names to files in the same folder)"
            ) from error
        missing = [file for file in files if not (self.folder / file).exists()]
        if missing:
            raise ValueError(
                f"{self.folder}: {min(missing)} is missing, which {INDEX} lists; complete the "
                "download"
            )
        return index


def digest_tensors(tensors: Tensors, names: Iterable[str]) -> str:
    """Return the SHA-256 of the names, shapes, dtypes and bytes of some tensors.

    One tensor is in memory at a time.

    Raises:
      ValueError: naming a tensor that has NaN or infinite values.
    """
    sha256 = hashlib.sha256()
    for name in sorted(names):
        tensor = tensors.read(name)
        if bad := tensor.size - np.count_nonzero(np.isfinite(tensor)):
            raise ValueError(
                f"{tensors.folder}: {quoted(name)} has {bad:,} values that are NaN or infinite; "
                "download or convert the file again"
            )
        sha256.update(json.dumps([name, tensor.shape, tensor.dtype.name]).encode())
        sha256.update(np.ascontiguousarray(tensor).view(np.uint8).data)
    return sha256.hexdigest()


def _read_header(file: Path) -> dict[str, Tensor]:
    """Return the shape and dtype of each tensor of a file."""
    header = {}
    with _open(file) as stream:
        for name in stream.keys():  # noqa: SIM118 - not a mapping
            if name.endswith(_CONSTANTS):
                continue
            entry = stream.get_slice(name)
            if entry.get_dtype() not in DTYPES:
                raise ValueError(
                    f"{file}: {quoted(name)} has dtype {entry.get_dtype()} (allowed: "
                    f"{', '.join(DTYPES)}); dequantize the model first"
                )
            header[name] = Tensor(tuple(entry.get_shape()), DTYPES[entry.get_dtype()])
    return header


@contextlib.contextmanager
def _open(file: Path) -> Iterator[Any]:
    """Open a file; raise ValueError if it is damaged or cannot be read."""
    try:
        check_file(file)
        with safe_open(str(file), framework="np") as stream:
            yield stream
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({one_line(str(error), 80)})") from error
    except SafetensorError as error:
        raise ValueError(
            f"{file} is damaged or cut short ({one_line(str(error), 80)}); download it again"
        ) from error
