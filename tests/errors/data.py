"""Errors of prepared data, tokenizers, and places to write to."""

import errno
import json
import os
import sys
from pathlib import Path

from data.config import DataConfig
from data.prepare import prepare
from data.store import TokenStore
from tests.errors.table import Row
from utils.files import digest


def damage(pattern: str):
    """Changes the bit in the middle of a file."""

    def flip(_):
        (path,) = Path().glob(pattern)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    return flip


def prepare_text():
    """Prepares one document with the run's tokenizer."""
    Path("text.jsonl").write_text('{"text": "some text"}')
    config = DataConfig(
        source="jsonl",
        path="text.jsonl",
        tokenizer="run/tokenizer.model",
        context_length=1,
        batch_size=1,
        prepared_root="made",
    )
    return prepare(config, show_progress=False)


def prepared_and_damaged(_):
    """Text whose documents begin elsewhere than is said."""
    path = prepare_text() / "train" / "00000.starts.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def begun_and_damaged(patch):
    """Text whose preparation was stopped, and its tokenizer changed."""
    (prepare_text() / "prepare.json").unlink()
    damage("made/*/tokenizer.model")(patch)


def read_only(patch):
    """Makes every folder one of a disk that cannot be written to."""

    def refuse(**_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    patch.setattr("tempfile.TemporaryFile", refuse)


def untokenized(patch):
    """Ends a row that goes as far as preparing data."""
    patch.setattr("data.pipeline.prepare", lambda config: 1 / 0)


def checksummed(content: str) -> str:
    """A JSON object with a correct sha256."""
    record = json.loads(content)
    return json.dumps({**record, "sha256": digest(record)})


ANEW = "delete made, and it is prepared anew"


def without(name: str):
    """A machine that lacks a package."""
    return lambda patch: patch.setitem(sys.modules, name, None)


ROWS = [
    Row(
        "-m data.redpajama.beam --path in",
        "this needs apache-beam: pip install '.[beam]' in the folder of ropewalk, in a "
        "separate environment",
        given=without("apache_beam"),
    ),
    Row(
        "-m data.redpajama.beam --path in --on-bad-documents=skip",
        "unknown option --on-bad-documents; did you mean --on-bad-document?",
    ),
    Row(
        "-m data.prepare --path in --out new",
        "--source local reads no --path; give --source jsonl|redpajama",
    ),
    Row(
        "-m data.prepare --source jsonl --path in --subset-share c4=1.5",
        "argument --subset-share: 'c4=1.5' is not NAME=SHARE with a share in [0, 1], like "
        "github=0.5",
    ),
    Row("-m data.prepare --verify nowhere", "nowhere: no prepared data there"),
    *(
        Row(
            "-m data.prepare --verify made",
            f"made/prepare.json: damaged: {what}; {ANEW}",
            files={"made/prepare.json": content},
        )
        for content, what in (
            ("{", "it is not JSON"),
            (b"\xff", "it is not JSON"),
            ("[" * 9999, "it is not JSON"),
            ("[]", "it is not a JSON object"),
            ('{"settings": {}, "sha256": "0"}', "its sha256 is not that of its content"),
            ('{"settings": {}}', "its sha256 is not that of its content"),
        )
    ),
    Row(
        "-m data.prepare --verify made",
        f"made/tokenizer.model: no tokenizer there (No such file or directory); {ANEW}",
        files={"made/prepare.json": checksummed('{"tokenizer": null}')},
    ),
    Row(
        "-m data.prepare --verify made",
        f"made/progress.json: damaged: it is not JSON; {ANEW}",
        files={"made/progress.json": ""},
    ),
    Row(lambda: TokenStore("made"), "made: no token store there (no store.json)"),
    Row(
        lambda: TokenStore("made"),
        "made: store format 2, this version reads 1; prepare the data again",
        files={"made/store.json": checksummed('{"format": 2}')},
    ),
    *(
        Row(
            lambda: TokenStore("made"),
            "made/store.json: damaged: not the index of a store; `python -m data.prepare --verify` "
            "says what to delete",
            files={
                "made/store.json": checksummed(
                    f'{{"format": 1, "bos_id": 1, "fingerprint": "", {rest}}}'
                )
            },
        )
        for rest in (
            '"dtype": "<u2"',
            '"dtype": "<u2", "shards": [1]',
            '"dtype": "<u2", "shards": [{"name": "0"}]',
            '"dtype": "<u2", "shards": [{"name": "0", "tokens": 1, "documents": 1, "sha256": "", '
            '"bytes": {"../other": 1}}]',
            '"dtype": "u2u", "shards": []',
        )
    ),
    Row(
        "evaluate.py run",
        "run/tokenizer.model: damaged: not the tokenizer that was written; delete it, and the "
        "command that trained the run writes it again",
        run=True,
        given=damage("run/tokenizer.model"),
    ),
    Row(
        "train.py tiny --workdir new data.tokenizer=run/tokenizer.model data.vocab_size=511 "
        "model.vocab_size=511",
        "the tokenizer has 512 ids but model.vocab_size=511; use model.vocab_size=512",
        run=True,
        given=untokenized,
    ),
    *(
        Row(command, f"{{}} cannot be written to (Read-only file system); {way}", given=read_only)
        for command, way in (
            ("train.py tiny --workdir new", "use another --workdir"),
            (
                "-m data.prepare --out new",
                "name another data.prepared_root (of data.prepare: --out)",
            ),
        )
    ),
    *(
        Row(
            command,
            f"{{}} cannot be written to (Read-only file system); {way}",
            run=True,
            given=read_only,
        )
        for command, way in (
            ("evaluate.py run", "keep the rows elsewhere: --out DIR"),
            ("evaluate.py run --out out", "give another --out DIR"),
            ("report.py run", "put the page elsewhere: --out FILE.html"),
        )
    ),
    *(
        Row(f"evaluate.py {options}", message, run=True, files=files)
        for options, message, files in (
            ("run --out run", "--out run is the evaluated directory; leave --out away", {}),
            (
                "run --out out",
                "out/config.json differs from run/config.json; give another --out DIR",
                {"out/config.json": "{}"},
            ),
            (
                "run --out out",
                "out/sweep.json differs from run/sweep.json; give another --out DIR",
                {"out/sweep.json": "{}"},
            ),
            (
                ". --out out",
                "out/config.json differs from config.json; give another --out DIR",
                {
                    "out/config.json": "{}",
                    "sweep.json": '{"config": "tiny", "overrides": [], "members": ["run"]}',
                },
            ),
            (
                "run run/../run --out out",
                "two directories are called run; evaluate each with its own --out",
                {},
            ),
        )
    ),
    Row(
        prepare_text,
        "made/jsonl-{}/train/00000.starts.npy: damaged: not where the documents begin; delete "
        "made/jsonl-{}, and it is prepared anew",
        run=True,
        given=prepared_and_damaged,
    ),
    Row(
        prepare_text,
        "made/jsonl-{}/tokenizer.model: damaged: not the tokenizer that was written; `python -m "
        "data.prepare --verify` says what to delete",
        run=True,
        given=begun_and_damaged,
    ),
    Row(
        "-m data.prepare --verify made",
        "made/jsonl-{}/tokenizer.model: damaged: not the tokenizer that was written; delete "
        "made/jsonl-{}, and it is prepared anew",
        run=True,
        given=begun_and_damaged,
    ),
]
