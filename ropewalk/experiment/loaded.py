"""A loaded checkpoint: `experiment.load`."""

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.config import ExperimentConfig, chosen_rotary
from ropewalk.experiment.devices import check_platform
from ropewalk.experiment.run import RunDirectory, find_run
from ropewalk.model import rotary as rotary_lib
from ropewalk.model import transformer
from ropewalk.model.config import PositionTable
from ropewalk.model.transformer import Params
from ropewalk.utils.messages import check_unicode, quoted


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LoadedRun:
    """A run at one checkpoint.

    Attributes:
      directory: directory of the run.
      step: step of the checkpoint.
      config: config at that step: in a run of stages, that of the stage.
      params: nested dicts of numpy arrays, blocks stacked in front.
    """

    directory: RunDirectory
    step: int
    config: ExperimentConfig
    params: Params

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the training. Raises ValueError if that was on no text."""
        return self.directory.tokenizer

    @property
    def table(self) -> PositionTable:
        """The frequencies of every layer, in float64: those trained with."""
        return self.config.model.position_table(self.config.data.context_length)

    @property
    def rotary_label(self) -> str:
        """The name of the variant that `table` is made of."""
        return rotary_lib.label(self.config.model.rotary)

    def with_rotary(self, text: str) -> "LoadedRun":
        """Return the same parameters with another variant; see `chosen_rotary`."""
        model = dataclasses.replace(self.config.model, rotary=chosen_rotary(text, self.config))
        return dataclasses.replace(self, config=dataclasses.replace(self.config, model=model))

    def as_tokens(self, tokens: str | np.ndarray) -> np.ndarray:
        """Return int32 ids `[B, T]`: a text becomes one row with BOS in front, ids stay the same.

        Raises:
          ValueError: if that is no array of ids of this model.
        """
        if isinstance(tokens, str):
            check_unicode(tokens, "tokens")
            tokens = np.array([self.tokenizer.encode_prompt(tokens)])
        tokens_BT = np.asarray(tokens)  # numpy refuses rows of several lengths
        if tokens_BT.ndim != 2 or not np.issubdtype(tokens_BT.dtype, np.integer):
            raise ValueError(f"tokens={quoted(tokens)} must be a text or whole numbers [B, T]")
        # An id outside the embedding would not fail: JAX takes the last row instead.
        vocab_size = self.config.model.vocab_size
        if tokens_BT.size and not 0 <= tokens_BT.min() <= tokens_BT.max() < vocab_size:
            raise ValueError(
                f"ids {tokens_BT.min()} ... {tokens_BT.max()} do not all lie in "
                f"0 ... {vocab_size - 1}"
            )
        return tokens_BT.astype(np.int32)

    def logits(self, tokens: str | np.ndarray) -> jax.Array:
        """Return the logits of the next token at each position, float32 `[B, T, V]`.

        Everything is computed in float32, as `evaluate.py` does. Of variants that change with a
        row's length, each row has the one of its own length T.

        Args:
          tokens: a text, which makes one row with BOS in front, or ids `[B, T]`, each row one
            document and taken as it is.

        Raises:
          ValueError: if that is no array of ids of this model.
        """
        tokens_BT = self.as_tokens(tokens)
        model = self.config.model
        table = model.position_table(self.config.data.context_length, tokens_BT.shape[1])
        network = model.forward_architecture()
        return transformer.document_logits(network, self.params, table, tokens_BT)

    def __repr__(self) -> str:
        model = self.config.model
        return (
            f"{self.directory.path} at step {self.step}: "
            f"{transformer.count_params(model)['total']:,} parameters, "
            f"{self.rotary_label}, "
            f"trained at {self.config.data.context_length} tokens"
        )


def load(path: str | Path, step: int | None = None) -> LoadedRun:
    """Load the run at `path`, at its newest checkpoint or that of `step`.

    Raises:
      ValueError: if `path` is not a run (for a sweep, name one member), or it has no such
        checkpoint.
    """
    return load_directory(find_run(path), step)


def load_directory(directory: RunDirectory, step: int | None = None) -> LoadedRun:
    """Return `load` of a run that was found already."""
    check_platform()  # before shapes are cached, in 64 bits
    params, step = restore_params(directory, step)
    return LoadedRun(directory, step, directory.config_at(step), params)
