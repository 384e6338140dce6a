"""Estimates of `--check`: passes over the text, time and disk that a command takes.

No text is read: the number of tokens follows from the bytes of the files. The time on CPUs follows
from the rate of a matrix product, that on GPUs and TPUs from their peak.
"""

import math
import shutil
import timeit
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from ropewalk.data.config import DataConfig
from ropewalk.data.mixture import describe_epochs
from ropewalk.data.prepare import open_source
from ropewalk.data.store import store_dtype
from ropewalk.experiment.metrics import flops_per_token, peak_flops, peak_of
from ropewalk.training.members import state_bytes
from ropewalk.training.plan import Checked
from ropewalk.utils.messages import duration
from ropewalk.utils.paths import in_bucket

_COMPRESSED, _RATIO = (".gz", ".zst", ".parquet"), 3
_BYTES_PER_BIT = 0.27  # of text, per bit of the vocabulary: 3.2 bytes per token of 4096
_CPU_SHARE, _CHIP_SHARE = 0.5, 0.3  # of a matrix product's rate; of a chip's peak
_SIDE, _REPEATS = 1024, 4  # of the matrix product


def describe(checks: Sequence[Checked], *, is_elsewhere: bool) -> list[str]:
    """Return lines about the rows, passes over the text, time and disk, and what is not known.

    Args:
      checks: groups of members, which train one after another.
      is_elsewhere: whether other devices than those of this process will train.
    """
    lines: dict[str, None] = {}
    flops = num_bytes = 0.0
    texts: dict[DataConfig, float] = {}
    for checked in checks:
        members, config = len(checked.runs), checked.config
        num_bytes += members * (config.train.keep + 1) * state_bytes(config)
        for (stage, *_), data in zip(checked.stages, checked.sources, strict=True):
            left = stage._replace(start=min(max(stage.start, checked.start_step), stage.end))
            flops += members * left.tokens * flops_per_token(stage.config)
            lines[_rows(data)] = None
            if data.has_text:
                vocab_size = stage.config.model.vocab_size
                tokens = _tokens(data, vocab_size)
                texts[data] = tokens * store_dtype(vocab_size).itemsize
                share = 1 - data.retrieval_fraction
                read = (stage.end - stage.rows_from) * stage.tokens_per_step  # of the same stream
                epochs = share * read / tokens
                join = " before data.subset_shares; at least" if data.subset_shares else ";"
                lines[f"text: about {tokens:,.0f} tokens{join} {describe_epochs(epochs)}"] = None
                is_short = stage.config.train.eval_every and tokens < 10 * data.context_length
                if is_short and not any(file.validation for file in open_source(data).inputs):
                    what = "a tenth of the text, which is held out, is less than a row of"
                    fix = "use more text or a shorter row, or set train.eval_every=0"
                    lines[f"warning: {what} {data.context_length} tokens; {fix}"] = None
    num_bytes += sum(texts.values())
    return [
        *lines,
        _time(flops, is_elsewhere),
        _disk(num_bytes, checks[0].runs[0].path),
        "not checked: documents, the memory of activations",
    ]


def _rows(data: DataConfig) -> str:
    share = data.retrieval_fraction if data.has_text else 1.0
    tasks = ", ".join(data.retrieval_tasks)
    retrieval = f"{100 * share:.4g}% retrieval documents ({tasks}), whose loss counts only answers"
    parts = [f"{100 - 100 * share:.4g}% text"] * (share < 1) + [retrieval] * (share > 0)
    return f"rows: {', '.join(parts)} (data.retrieval_fraction={share:g})"


def _tokens(data: DataConfig, vocab_size: int) -> float:
    """Estimate the tokens of the files that are not held out."""
    num_bytes = sum(
        file.size * (_RATIO if file.name.lower().endswith(_COMPRESSED) else 1)
        for file in open_source(data).inputs
        if not file.validation
    )
    return max(1, num_bytes / (_BYTES_PER_BIT * math.log2(vocab_size)))


def _time(flops: float, is_elsewhere: bool) -> str:
    """Return the line about the time, on this process's devices or, for others, on an H100."""
    if not flops:
        return "time: none, all steps are there"
    peak, rate = peak_of("H100"), "an H100"
    if not is_elsewhere:
        peak, rate = peak_flops(), f"{jax.device_count()} of this machine's devices"
    share = _CHIP_SHARE
    if peak is None:
        peak, share, rate = _matmul_rate(), _CPU_SHARE, "this machine"
    seconds = flops / (share * peak)
    return (
        f"time: {flops:.2g} FLOPs, about {duration(seconds)} on {rate} "
        f"at {share * peak:.2g} FLOP/s; compilation and evaluation come on top"
    )


def _matmul_rate() -> float:
    """Return the FLOP/s of a float32 matrix product, the best of a few."""
    x = jnp.ones((_SIDE, _SIDE))
    product = jax.jit(lambda x: x @ x).lower(x).compile()
    seconds = timeit.repeat(lambda: product(x).block_until_ready(), number=1, repeat=_REPEATS)
    return 2 * _SIDE**3 / min(seconds)


def _disk(num_bytes: float, path: Path) -> str:
    line = f"disk: about {_in_gb(num_bytes)} of checkpoints and tokens"
    if in_bucket(path):
        return line
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    return f"{'warning: ' * (free < num_bytes)}{line}; {_in_gb(free)} are free"


def _in_gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.3g} GB"
