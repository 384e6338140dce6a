"""What is refused of prepared data and tokenizers."""

from pathlib import Path

from data.store import TokenStore
from tests.errors.table import Row


def damage(name: str):
    """Changes one bit of a file of the run."""

    def flip(_):
        content = bytearray(Path(name).read_bytes())
        content[len(content) // 2] ^= 1
        Path(name).write_bytes(content)

    return flip


ANEW = "delete made, and it is prepared anew"

ROWS = [
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
            ('{"settings": {}, "sha256": "0"}', "its sha256 is not that of what it says"),
            ('{"settings": 1}', "not what preparing data leaves"),
        )
    ),
    Row(
        "-m data.prepare --verify made",
        f"made/tokenizer.model: no tokenizer there (No such file or directory); {ANEW}",
        files={"made/prepare.json": '{"settings": {"tokenizer": null}}'},
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
        files={"made/store.json": '{"format": 2}'},
    ),
    *(
        Row(
            lambda: TokenStore("made"),
            "made/store.json: damaged: not the index of a store; `python -m data.prepare --verify` "
            "says what to delete",
            files={"made/store.json": f'{{"format": 1, "bos_id": 1, "fingerprint": "", {rest}}}'},
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
]
