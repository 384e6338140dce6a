"""Chat templates of published models (Jinja), and the ids that end a turn."""

import contextlib
from pathlib import Path
from typing import NamedTuple

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.tokenizer_json import read_settings
from ropewalk.utils.limits import read_bytes
from ropewalk.utils.messages import one_line

_CONTENT = "CONTENT OF THE MESSAGE"  # a text that no template contains


def read_template(folder: Path) -> str | None:
    """Return the chat template of a published folder; None if it has none."""
    with contextlib.suppress(OSError):
        return read_bytes(folder / "chat_template.jinja").decode()
    template = read_settings(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):  # of several by name, transformers uses this one without tools
        names = (x for x in template if isinstance(x, dict) and x.get("name") == "default")
        template = next(names, {}).get("template")
    return template if isinstance(template, str) else None


def read_stop_ids(folder: Path) -> tuple[int, ...]:
    """Return the ids that end a generation by the folder's generation_config.json, if it has one.

    Chat models end a turn with another id than a document.
    """
    ids = read_settings(folder / "generation_config.json").get("eos_token_id")
    return tuple(i for i in (ids if isinstance(ids, list) else [ids]) if type(i) is int)


def render(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> str:
    """Return the prompt of a chat, up to the start of the model's answer.

    Args:
      tokenizer: tokenizer with a chat template.
      messages: `{"role": "user", "content": TEXT}` and so on, oldest first.

    Raises:
      ValueError: if there is no template, it refuses these messages, or transformers is missing.
    """
    if tokenizer.chat_template is None:
        raise ValueError(
            "the run has no chat template: import a chat model, or use tasks without a chat"
        )
    try:
        from transformers import PreTrainedTokenizerBase  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError("chat templates need transformers: pip install 'ropewalk[hf]'") from None
    names = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    special = {name: tokenizer.name_of(i) for name, i in names.items()}
    try:
        library = PreTrainedTokenizerBase(chat_template=tokenizer.chat_template, **special)
        return library.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program, which can fail in any way
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        raise ValueError(f"the run's chat template does not work: {reason}") from error


class Turns(NamedTuple):
    """The ids between the contents of a chat's messages.

    Attributes:
      before: BOS up to the first message of the user, with a default system message if any.
      to_answer: from the end of a user's message to the start of the answer.
      to_question: from the end of an answer to the next message of the user.
    """

    before: list[int]
    to_answer: list[int]
    to_question: list[int]


def turns(tokenizer: Tokenizer) -> Turns:
    """Return the ids between the messages of a chat.

    Raises:
      ValueError: as `render`, or if the template has no place for a message.
    """
    roles = "user", "assistant", "user"
    prompt = render(tokenizer, [{"role": role, "content": _CONTENT} for role in roles])
    before, *parts = prompt.split(_CONTENT)
    if len(parts) != len(roles):
        raise ValueError("the run's chat template does not contain every message once")
    to_answer, to_question = (
        tokenizer.encode(part, inside=True, special=True) for part in parts[:2]
    )
    return Turns(tokenizer.encode_prompt(before), to_answer, to_question)
