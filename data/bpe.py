"""Trains a SentencePiece model: in a process of its own where the library might end this one.

Before 0.2.3 the trainer aborts on small texts: "Check failed: freq > 0".
"""

import io
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import sentencepiece

ABORTS_BEFORE = (0, 2, 3)


def train_bpe(sentences: Iterable[str], options: Mapping[str, Any]) -> bytes:
    """The content of a `.model` file.

    Raises:
      RuntimeError: in SentencePiece's words, if it cannot be trained.
      ValueError: if SentencePiece is an old one, and aborts.
    """
    version = sentencepiece.__version__
    if tuple(map(int, version.split(".")[:3])) >= ABORTS_BEFORE:
        return _train(sentences, options)
    child = subprocess.run(
        [sys.executable, "-P", __file__],
        input=pickle.dumps((list(sentences), dict(options))),
        capture_output=True,
    )
    if not child.returncode:
        return child.stdout
    said = child.stderr.decode(errors="replace").strip().splitlines()
    if child.returncode > 0:
        raise RuntimeError(said[-1] if said else f"it exited with {child.returncode}")
    reason = next((line for line in said if "Check failed" in line), "no reason given")
    raise ValueError(
        f"sentencepiece {version} aborts on this text ({reason.rpartition('] ')[2].strip()}); "
        "pip install 'sentencepiece>=0.2.3'"
    )


def _train(sentences: Iterable[str], options: Mapping[str, Any]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, model_type="bpe", **options
    )
    return model.getvalue()


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(_train(*pickle.load(sys.stdin.buffer)))
    except RuntimeError as error:
        sys.exit(str(error))
