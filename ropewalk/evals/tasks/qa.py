"""RULER's questions about documents: SQuAD and HotpotQA, with other documents beside theirs.

Template of Hsieh et al. (arXiv 2404.06654), word for word. `path` is a file of SQuAD
(dev-v2.0.json or dev-v1.1.json; questions that cannot be answered are left out) or HotpotQA
(hotpot_dev_distractor_v1.json), and document n asks question n, from 0. Documents of the question
stand among as many others of the file as fit, in random order: first those of the same article
(SQuAD), then any.

The first reference answer is teacher-forced after " Answer:". RULER decodes 32 tokens and accepts
any reference answer anywhere in them, in any case; a row states whether the model gives the first
one at once, exactly. `distance` is measured from the start of the document with the answer, in
HotpotQA of the first supporting one.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.evals import prompts
from ropewalk.utils.limits import read_json
from ropewalk.utils.paths import as_path

_ORDER = (
    "Answer the question based on the given documents. Only give me the answer and do not output "
    "any other words.\n\n"
)


class _Question(NamedTuple):
    """A question; the first of its documents has the answer."""

    text: str
    answer: str
    documents: list[str]
    related: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qa(prompts.PromptTask):
    """Questions about documents; see the module.

    Attributes:
      path: file of SQuAD or HotpotQA.
    """

    kind = "score"
    path: str

    def check_files(self) -> None:
        """Implement `Task.check_files`."""
        _read(self.path)

    def sources(self, context: TaskContext, numbers: range) -> Iterable[tuple[int, Any]]:
        """Return the questions of the file."""
        questions, _ = _read(self.path)
        return [(number, questions[number]) for number in numbers if number < len(questions)]

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the documents, and the question with its answer."""
        question, (_, texts) = sample.source, _read(self.path)
        encode, random = prompts.encoder(context.tokenizer), sample.random
        blank, answer = encode("\n\n"), encode(" " + question.answer)
        end = encode(f"{_ORDER}Question: {question.text}") + encode(" Answer:")
        start = [context.tokenizer.bos_id, *encode(f"{_ORDER}The following are given documents.")]

        def others() -> Iterator[str]:
            yield from (question.related[i] for i in random.permutation(len(question.related)))
            known = {*question.documents, *question.related}
            yield from (texts[i] for i in random.permutation(len(texts)) if texts[i] not in known)

        room = context.length + 1 - len(start + blank + end + answer)
        headers, parts = [], []
        for text in (*question.documents, *others()):
            header = blank + encode(f"Document {len(parts) + 1}:\n")
            part = encode(text)
            room -= len(header + part)
            if room < 0 and len(parts) >= len(question.documents):
                break
            headers.append(header)
            parts.append(part)
        tokens, first = list(start), 0
        for header, index in zip(headers, random.permutation(len(parts)).tolist(), strict=True):
            tokens += header
            first = first if index else len(tokens)
            tokens += parts[index]
        if (size := len(tokens + blank + end + answer) - 1) > context.length:
            raise ValueError(
                f"qa: the documents of question {sample.number} do not fit "
                f"length={context.length}; ask for --lengths {size} or more"
            )
        return prompts.append_answers(tokens + blank + end, [([], answer, first)])


@functools.lru_cache(maxsize=2)
def _read(path: str) -> tuple[list[_Question], list[str]]:
    """Return the questions of a file and all its documents.

    Raises:
      ValueError: if it is not a file of SQuAD or HotpotQA.
    """
    if not as_path(path).is_file():
        raise ValueError(f"qa: {path} is not a file of SQuAD or HotpotQA")
    try:
        content = read_json(as_path(path))
        questions = list(_squad(content) if isinstance(content, dict) else _hotpotqa(content))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"qa: {path} is not a file of SQuAD or HotpotQA: {error!r}") from None
    texts = {text for question in questions for text in (*question.documents, *question.related)}
    return questions, sorted(texts)


def _squad(content: dict[str, Any]) -> Iterator[_Question]:
    for article in content["data"]:
        texts = [paragraph["context"] for paragraph in article["paragraphs"]]
        for text, paragraph in zip(texts, article["paragraphs"], strict=True):
            related = [other for other in dict.fromkeys(texts) if other != text]
            for item in paragraph["qas"]:
                if item["answers"] and not item.get("is_impossible"):
                    yield _Question(item["question"], item["answers"][0]["text"], [text], related)


def _hotpotqa(content: list[dict[str, Any]]) -> Iterator[_Question]:
    for item in content:
        title = item["supporting_facts"][0][0]
        context = sorted(item["context"], key=lambda document: document[0] != title)
        if context[0][0] != title:
            raise ValueError(f"no document {title}; use hotpot_dev_distractor_v1.json")
        texts = [f"{name}\n{''.join(lines)}" for name, lines in context]
        yield _Question(item["question"], item["answer"], texts, [])
