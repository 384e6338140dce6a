"""A needle in a haystack: retrieval of a sentence or number that is hidden at every depth.

RULER's needles (Hsieh et al., arXiv 2404.06654), and gkamradt's sentence about Dolores Park, for
base models. Templates are the official ones, word for word. The prompt ends with the
official answer prefix and a space, and the answer is teacher-forced: seven digits, or the rest of
the sentence. The distance is from the first id of the answer in the needle to the position that
predicts that id.

Documents of equal number cover every depth of a grid and differ in nothing else: they have the same
haystack, needle and distractors. `query` is the index of the depth. Depths that fall on the same
position of a small haystack become one document. The depth of an answer follows from rows alone:
1 - distance / length; see `Needle.grid`.

    haystack=noise   lines of RULER's five sentences; needles are lines between them (S-NIAH-1)
    haystack=text    a random crop of held-out text for each number; needles are inserted at the
                     sentence end nearest to their depth, or at their depth if none is near
                     (S-NIAH-2; the official generator reads essays)
    haystack=needle  lines that are needles with other keys (MK-NIAH-2)

    cue=ruler        an adjective-noun and its number; `keys` needles, one of which is the answer.
                     UUIDs may stand in place of numbers (`value_type`, S-NIAH-3) and of both
                     (`key_type` too, MK-NIAH-3).
                     `values` numbers for every key (MV-NIAH), `queries` keys in one question
                     (MQ-NIAH): each number is an answer, in the order of the keys in the question
                     and of the numbers in the text, with ", " between them. Such a document has all
                     needles at random depths. RULER counts the numbers anywhere in 128 tokens, in
                     any order; a row states whether the number comes next
    cue=gkamradt     "The best thing to do in San Francisco is", as a question and that start
    cue=easy         the same, and the needle also contains the question (Lin et al., arXiv
                     2503.02130): the context repeats the cue and the answer word for word

With gkamradt and easy every document has the same answer, which a model may know from training, and
swapping answers between documents has no effect. They need `haystack=text`: with noise all
documents would be equal.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from ropewalk.data import keys
from ropewalk.data.keys import Entry
from ropewalk.data.task import Document, Sample, TaskContext, possible
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.word_lists import ADJECTIVES, HELD_OUT_NOUNS
from ropewalk.evals import prompts, text
from ropewalk.utils.checks import Bounds, Count


class _Wording(NamedTuple):
    """Ids of the parts of RULER's prompt, encoded once."""

    intro: list[int]
    needle: list[list[int]]  # around key and value
    question: list[list[int]]  # around the key, which occurs twice
    names: keys.Pairs | keys.Uuids
    values: range | keys.Uuids

    def ask(self, name: list[int]) -> list[int]:
        """Return the ids between the haystack and the answer."""
        first, second, third = self.question
        return first + name + second + name + third


@functools.lru_cache(maxsize=8)
def _wording(
    tokenizer: Tokenizer, haystack: str, several: bool, key_type: str, value_type: str
) -> _Wording:
    # A needle between lines is a line; a needle between sentences starts with a space.
    start, end, line = (" ", "", "\n") if haystack == "text" else ("", "\n", "")
    number = value_type if several else value_type.removesuffix("s")
    some, are, are_all = ("Some", "are", "are all") if several else ("A", "is", "is")
    return _Wording(
        tokenizer.encode(
            f"{some} special magic {number} {are} hidden within the following text. Make sure to "
            f"memorize it. I will quiz you about the {number} afterwards.\n"
        ),
        prompts.parts(
            tokenizer, f"{start}One of the special magic {value_type} for{{}} is: {{}}.{end}"
        ),
        prompts.parts(
            tokenizer,
            line + f"What {are_all} the special magic {number} for{{}} mentioned in the provided "
            f"text? The special magic {number} for{{}} mentioned in the provided text {are} ",
        ),
        keys.pairs(tokenizer, ADJECTIVES, HELD_OUT_NOUNS, (" ", "-"))
        if key_type == "words"
        else keys.Uuids(tokenizer, " "),
        range(10**6, 10**7) if value_type == "numbers" else keys.Uuids(tokenizer),
    )


@functools.lru_cache(maxsize=8)
def _sentence_ends(tokenizer: Tokenizer) -> np.ndarray:
    """Return which ids end a sentence or a line, bool `[vocab]`."""
    return np.array([piece.endswith((b".", b"!", b"?", b"\n")) for piece in tokenizer.piece_bytes])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needle(prompts.PromptTask):
    """A needle in a haystack; see the module.

    Attributes:
      haystack: "noise", "text" or "needle".
      keys: different keys in the haystack, at least `queries` (RULER's multikey_1 has 4).
      values: needles of each key.
      queries: keys in the question.
      key_type: "words" or "uuids".
      value_type: "numbers" or "uuids".
      cue: "ruler", "gkamradt" or "easy".
      depths: number of depths, evenly spaced from the start of the haystack to its end, or over
        the distances of the context if it has them.
    """

    kind = "retrieval"
    haystack: Literal["noise", "text", "needle"] = "noise"
    keys: Count = 1
    values: Count = 1
    queries: Count = 1
    key_type: Literal["words", "uuids"] = "words"
    value_type: Literal["numbers", "uuids"] = "numbers"
    cue: Literal["ruler", "gkamradt", "easy"] = "ruler"
    depths: Annotated[int, Bounds(at_least=2)] = 8

    def __post_init__(self):
        super().__post_init__()
        has_uuids = "uuids" in (self.key_type, self.value_type)
        if self.cue != "ruler" and (self._num_needles > 1 or self.haystack != "text" or has_uuids):
            raise ValueError(
                f"needle(cue={self.cue}) has one needle, of words, in text that differs between "
                "documents: "
                f"write needle(haystack=text,cue={self.cue})"
            )

    @property
    def _num_needles(self) -> int:
        return max(self.keys, self.queries) * self.values

    @property
    def _several(self) -> bool:
        """Return whether a question has several answers."""
        return self.queries * self.values > 1

    def _words(self, tokenizer: Tokenizer) -> _Wording:
        return _wording(tokenizer, self.haystack, self._several, self.key_type, self.value_type)

    def _value_sizes(self) -> tuple[int, int]:
        """Return the most and fewest ids of a value."""
        return (7, 7) if self.value_type == "numbers" else (36, 5)

    def least_length(self, context: TaskContext) -> int:
        """Return the length with one line, or one id of text for each depth."""
        smallest = self.depths
        if self.haystack == "noise":
            smallest = len(prompts.noise_line(context.tokenizer))
        if self.haystack == "needle":
            wording = self._words(context.tokenizer)
            smallest = sum(map(len, wording.needle)) + wording.names.longest
            smallest += self._value_sizes()[0]
        intro, longest, _ = self._sizes(context.tokenizer)
        return len(intro) + longest + smallest - 1

    def sources(self, context: TaskContext, numbers: range) -> Iterable[tuple[int, Any]]:
        """Return a crop for each number, or None for noise."""
        if self.haystack != "text":
            return super().sources(context, numbers)
        intro, _, shortest = self._sizes(context.tokenizer)
        room = context.length + 1 - len(intro) - shortest
        return text.crops(context, numbers, task="needle(haystack=text)", length=room)

    def document(self, context: TaskContext, sample: Sample) -> Document | list[Document]:
        """Make the same question at every depth, or one question with several answers."""
        if self._several:
            return self._with_several_answers(context, sample)
        intro, _, _ = self._sizes(context.tokenizer)
        (needle, *distractors), question = self._needles(context, sample)
        fixed = len(intro) + len(question + needle.number)
        room = context.length + 1 - fixed - sum(len(item.ids) for item in (needle, *distractors))
        hay, places, within = self._hay(context, sample, room, [needle.before])
        for other in distractors:
            position = _nearest(sample.random.integers(len(hay) + 1, size=1), places, within)
            places = places + len(other.ids) * (places >= position)
            hay = np.insert(hay, position[0], other.ids)

        nearest = len(needle.number + needle.after + question) - 1
        wished = np.linspace(0, len(hay), self.depths)
        if context.distances:
            near, far = possible(nearest, nearest + len(hay), context.distances)
            wished = len(hay) + nearest - np.linspace(far, near, self.depths)
            inside = places[(wished[0] <= places) & (places <= wished[-1])]
            places = inside if len(inside) or self.haystack == "text" else places
        positions, depth = np.unique(_nearest(wished, places, within), return_index=True)
        rows = []
        for position, query in zip(positions.tolist(), depth.tolist(), strict=True):
            parts = intro, hay[:position], needle.ids, hay[position:], question, needle.number
            tokens, count = np.concatenate(parts), len(needle.number)
            answer = len(tokens) - count, count, len(hay) - position + nearest
            rows.append(Document.from_lists(tokens, [answer], first_query=query))
        return rows

    def _hay(
        self, context: TaskContext, sample: Sample, room: int, needles: list[list[int]]
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the haystack, the places of needles in it, and their reach.

        Args:
          room: most ids.
          needles: ids of the needles before their numbers; no line of the haystack has them.
        """
        if self.haystack == "text":
            hay = sample.source.tokens[1 : room + 1]
            places = np.flatnonzero(_sentence_ends(context.tokenizer)[hay]) + 1
            return hay, places, len(hay) / (self.depths - 1) / 2
        line = prompts.noise_line(context.tokenizer)
        hay = np.tile(line, room // len(line))
        places = np.arange(0, len(hay) + 1, len(line))
        if self.haystack == "needle":
            wording = self._words(context.tokenizer)
            _, entries = keys.draw_entries(
                context, sample, wording.names, wording.needle, wording.values, task="needle"
            )
            entries = [entry for entry in entries if entry.before not in needles]
            ids: list[int] = []
            starts = keys.append_entries(ids, entries, room, task="needle")
            sizes = [len(entry.ids) for entry in entries[: len(starts)]]
            hay, places = np.array(ids, np.int32), np.cumsum([0, *sizes])
        return hay, places, len(hay)

    def _with_several_answers(self, context: TaskContext, sample: Sample) -> Document:
        """Make a question for several numbers, whose needles are at random depths."""
        tokenizer, random = context.tokenizer, sample.random
        wording, num_keys = self._words(tokenizer), max(self.keys, self.queries)
        comma, line_up = prompts.encoder(tokenizer)(", "), self._line_up(tokenizer)
        drawn = random.choice(len(wording.names), size=num_keys, replace=False).tolist()
        names = [wording.names[key] for key in drawn]
        numbers = keys.draw_values(
            context, sample, wording.values, self._num_needles, task="needle"
        )
        before, middle, after = wording.needle
        needles = [
            Entry(before + names[i // self.values] + middle, number, after)
            for i, number in enumerate(numbers)
        ]
        asked = random.choice(num_keys, size=self.queries, replace=False).tolist()
        question = wording.ask(line_up([names[key] for key in asked]))
        answers = [i for key in asked for i in range(key * self.values, (key + 1) * self.values)]

        room = context.length + 1 - len(wording.intro) - 1 - len(question)
        room -= sum(len(needle.ids) for needle in needles) + (len(answers) - 1) * len(comma)
        room -= sum(len(numbers[i]) for i in answers)
        hay, places, within = self._hay(
            context, sample, room, [needle.before for needle in needles]
        )
        # From the start of every needle to the answers: hay, itself and later needles, question.
        later = np.cumsum([len(needle.ids) for needle in needles])[::-1]
        end = len(hay) + len(question)
        near, far = possible(len(question), end + int(later[0]), context.distances)
        wished = np.sort(random.integers(near, far + 1, size=len(needles)))[::-1]
        wished = np.clip(end + later - wished, 0, len(hay))
        positions = np.sort(_nearest(wished, places, within)).tolist()
        tokens, starts, last = [tokenizer.bos_id, *wording.intro], {}, 0
        # Numbers of a key stand in their order.
        order = np.arange(num_keys).repeat(self.values)[random.permutation(len(needles))].tolist()
        unused = {key: iter(range(key * self.values, (key + 1) * self.values)) for key in order}
        for position, key in zip(positions, order, strict=True):
            tokens += hay[last:position].tolist()
            index, last = next(unused[key]), position
            starts[index] = len(tokens) + len(needles[index].before)
            tokens += needles[index].ids
        tokens += hay[last:].tolist() + question
        return prompts.ask(
            tokens, [(comma * (i > 0), numbers[n], starts[n]) for i, n in enumerate(answers)]
        )

    @staticmethod
    def _line_up(tokenizer: Tokenizer) -> Callable[[list[list[int]]], list[int]]:
        """Return the function that joins the ids of names as "a, b, and c"."""
        comma, last = map(prompts.encoder(tokenizer), (",", ", and"))

        def join(names: list[list[int]]) -> list[int]:
            ids = list(names[0])
            for index, name in enumerate(names[1:], start=2):
                ids += (last if index == len(names) else comma) + name
            return ids

        return join

    def _sizes(self, tokenizer: Tokenizer) -> tuple[list[int], int, int]:
        """Return the ids before the haystack, and the most and fewest ids without a haystack."""
        if self.cue != "ruler":
            (needle,), question = self._dolores_park(tokenizer)
            size = len(needle.ids + question + needle.number)
            return [tokenizer.bos_id], size, size
        wording, answers = self._words(tokenizer), self.queries * self.values
        constant = self._num_needles * sum(map(len, wording.needle))
        constant += sum(map(len, wording.question))
        constant += (answers - 1) * len(prompts.encoder(tokenizer)(", "))
        constant += 2 * len(self._line_up(tokenizer)([[]] * self.queries))
        sizes = wording.names.longest, wording.names.shortest
        largest, smallest = (
            constant
            + (self._num_needles + 2 * self.queries) * size
            + (self._num_needles + answers) * value
            for size, value in zip(sizes, self._value_sizes(), strict=True)
        )
        return [tokenizer.bos_id, *wording.intro], largest, smallest

    def _needles(self, context: TaskContext, sample: Sample) -> tuple[list[Entry], list[int]]:
        """Return the needle of the question and the distractors, and the ids of the question."""
        if self.cue != "ruler":
            return self._dolores_park(context.tokenizer)
        wording = self._words(context.tokenizer)
        drawn, needles = keys.draw_entries(
            context, sample, wording.names, wording.needle, wording.values, task="needle",
            count=self.keys,
        )  # fmt: skip
        return needles, wording.ask(wording.names[drawn[0]])

    def _dolores_park(self, tokenizer: Tokenizer) -> tuple[list[Entry], list[int]]:
        encode = prompts.encoder(tokenizer)
        question = encode("What is the best thing to do in San Francisco? Answer:")
        start = encode(" The best thing to do in San Francisco is")
        value = encode(" eat a sandwich and sit in Dolores Park on a sunny day.")
        line = encode("\n")
        cue = encode("The best thing to do in San Francisco is")
        before = line + (question + start if self.cue == "easy" else cue)
        return [Entry(before, value, line)], line + question + start

    def chance(self, tokenizer: Tokenizer) -> float:
        """Return the accuracy of a guess, 0 if all documents have the same answer."""
        if self.cue != "ruler":
            return 0.0
        return 1 / (9 * 10**6) if self.value_type == "numbers" else 2.0**-122


def _nearest(targets: np.ndarray, places: np.ndarray, within: float) -> np.ndarray:
    """Return the nearest of `places`, int `[n]`, or the target where none is `within` reach."""
    targets = np.rint(targets).astype(int)
    if not len(places):
        return targets
    gaps = np.abs(targets[:, None] - places)
    closest = places[gaps.argmin(axis=1)]
    return np.where(gaps.min(axis=1) <= within, closest, targets)
