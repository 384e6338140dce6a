"""A needle in a haystack: one sentence or number, hidden at every depth, is asked for.

RULER's S-NIAH and multikey (Hsieh et al., arXiv 2404.06654), and gkamradt's sentence about Dolores
Park, for models that complete text. Templates are the official ones, word for word; the prompt ends
with the official answer prefix and a space, and the answer is teacher-forced: seven digits, or the
rest of the sentence. Distance is from the first id of the answer in the needle to the position that
must give it.

A document's number is asked at every depth of a grid, all else equal: same haystack, same needle,
same distractors in the same order. `query` is the place in the grid. Where so few places lie in
the haystack that two depths are one place, it is asked once. The depth of an answer in its context
can be had from rows alone, 1 - distance / length: see `depth_grid`.

    haystack=noise   lines of RULER's five sentences; needles are lines between them (S-NIAH-1)
    haystack=text    a random crop of held-out text for each number; needles stand at the sentence
                     end nearest to their depth, or where none is near, at their depth (S-NIAH-2)

    cue=ruler        an adjective-noun and its number; `keys` needles, of which one is asked
    cue=gkamradt     "The best thing to do in San Francisco is", asked by a question and that start
    cue=easy         the same, and the needle holds the question too (Lin et al., arXiv 2503.02130):
                     what follows the cue stands word for word in the context

With the last two every document has the same answer: a model that read the sentence in training
can give it without looking, and swapping answers between documents shows nothing. They need
`haystack=text`: over noise all documents would be one.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from data.tokenizer import Tokenizer
from data.words import ADJECTIVES, HELD_OUT_NOUNS
from evals import prompts, text
from evals.rows import Rows
from evals.task import Document, Task
from experiment.config import ExperimentConfig

DEPTHS = 8


class _Needle(NamedTuple):
    """One needle and the question about it, as ids."""

    before: list[int]
    value: list[int]
    after: list[int]
    question: list[int]  # what comes after the haystack and before the answer

    @property
    def ids(self) -> list[int]:
        return self.before + self.value + self.after


class _Wording(NamedTuple):
    """Ids of the parts of RULER's prompt, encoded once."""

    intro: list[int]
    needle: tuple[list[int], list[int], list[int]]  # around key and value
    question: tuple[list[int], list[int], list[int]]  # around the key, twice
    adjectives: list[list[int]]
    nouns: list[list[int]]


@functools.lru_cache(maxsize=8)
def _wording(tokenizer: Tokenizer, haystack: str) -> _Wording:
    encode = prompts.encoder(tokenizer)
    # A needle between lines is a line; between sentences it starts with the space between them.
    start, end = ("", "\n") if haystack == "noise" else (" ", "")
    line = "" if haystack == "noise" else "\n"
    return _Wording(
        tokenizer.encode(
            "A special magic number is hidden within the following text. Make sure to memorize "
            "it. I will quiz you about the number afterwards.\n"
        ),
        (
            encode(start + "One of the special magic numbers for"),
            encode(" is: "),
            encode("." + end),
        ),
        (
            encode(line + "What is the special magic number for"),
            encode(" mentioned in the provided text? The special magic number for"),
            encode(" mentioned in the provided text is "),
        ),
        [encode(" " + word) for word in ADJECTIVES],
        [encode("-" + word) for word in HELD_OUT_NOUNS],
    )


@functools.lru_cache(maxsize=8)
def _sentence_ends(tokenizer: Tokenizer) -> np.ndarray:
    """bool `[vocab]`: ids whose text ends a sentence or a line."""
    return np.array([piece.endswith((b".", b"!", b"?", b"\n")) for piece in tokenizer.piece_bytes])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needle(Task):
    """See the module.

    Attributes:
      haystack: "noise" or "text".
      keys: needles in the haystack, each with a key of its own (RULER's multikey_1 has 4).
      cue: "ruler", "gkamradt" or "easy".
      depths: number of depths, evenly spaced from the start of the haystack to its end; where
        distances are asked for, evenly spaced over these.
    """

    kind = "retrieval"
    haystack: Literal["noise", "text"] = "noise"
    keys: int = 1
    cue: Literal["ruler", "gkamradt", "easy"] = "ruler"
    depths: int = DEPTHS

    def __post_init__(self):
        for name, valid in (
            ("haystack", ("noise", "text")),
            ("cue", ("ruler", "gkamradt", "easy")),
        ):
            if getattr(self, name) not in valid:
                raise ValueError(
                    f"needle({name}=...) must be one of {', '.join(valid)}, "
                    f"got {getattr(self, name)!r}"
                )
        if self.keys < 1 or self.depths < 2:
            raise ValueError(
                "needle needs keys of at least 1 and depths of at least 2, "
                f"got keys={self.keys}, depths={self.depths}"
            )
        if self.cue != "ruler" and (self.keys > 1 or self.haystack == "noise"):
            raise ValueError(
                f"needle(cue={self.cue}) has one needle, in text that differs between documents: "
                f"write needle(haystack=text,cue={self.cue})"
            )

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        line = prompts.encoder(tokenizer)(prompts.NOISE + "\n")
        smallest = len(line) if self.haystack == "noise" else self.depths
        intro, longest, shortest = self._sizes(tokenizer)
        prompts.check_length("needle", length, len(intro) + longest + smallest - 1)

        documents = []
        haystacks = self._haystacks(config, tokenizer, length, numbers, len(intro) + shortest)
        for number, crop in haystacks:
            random = prompts.generator(self, config.evals.seed, length, number)
            asked, *others = self._needles(tokenizer, random)
            fixed = len(intro) + len(asked.question + asked.value)
            room = length + 1 - fixed - sum(len(each.ids) for each in (asked, *others))
            if crop is None:
                hay = np.tile(line, room // len(line))
                places = np.arange(0, len(hay) + 1, len(line))
                within = len(hay)
            else:
                hay = crop[:room]
                places = np.flatnonzero(_sentence_ends(tokenizer)[hay]) + 1
                within = len(hay) / (self.depths - 1) / 2
            for other in others:
                place = _nearest(random.integers(len(hay) + 1, size=1), places, within)
                places = places + len(other.ids) * (places >= place)
                hay = np.insert(hay, place[0], other.ids)
            documents += self._at_depths(intro, hay, asked, places, within, number, distances)
        return documents

    def _at_depths(
        self, intro, hay, asked, places, within, number, distances
    ) -> Iterator[Document]:
        nearest = len(asked.value + asked.after + asked.question) - 1
        wished = np.linspace(0, len(hay), self.depths)
        if distances:
            near, far = prompts.possible(nearest, nearest + len(hay), distances)
            wished = len(hay) + nearest - np.linspace(far, near, self.depths)
            inside = places[(wished[0] <= places) & (places <= wished[-1])]
            places = inside if len(inside) or self.haystack == "text" else places
        found, depth = np.unique(_nearest(wished, places, within), return_index=True)
        for place, query in zip(found.tolist(), depth.tolist(), strict=True):
            parts = intro, hay[:place], asked.ids, hay[place:], asked.question, asked.value
            tokens = np.concatenate(parts).astype(np.int32)
            count = len(asked.value)
            answer = len(tokens) - count, count, len(hay) - place + nearest
            yield Document(
                tokens=tokens,
                answers=np.array([answer], np.int32),
                number=number,
                first_query=query,
            )

    def _haystacks(
        self, config, tokenizer, length, numbers, fixed
    ) -> Iterator[tuple[int, np.ndarray | None]]:
        """Number and text of each document; the text is None for noise."""
        if self.haystack == "noise":
            yield from ((number, None) for number in numbers)
            return
        room = length + 1 - fixed
        crops = text.crops(config, tokenizer, room, numbers, task="needle(haystack=text)")
        yield from ((number, ids[1:]) for number, ids, _ in crops)

    def _sizes(self, tokenizer: Tokenizer) -> tuple[list[int], int, int]:
        """Ids before the haystack; and how many, at most and at least, all but the haystack has."""
        if self.cue != "ruler":
            asked = self._dolores_park(tokenizer)
            size = len(asked.ids + asked.question + asked.value)
            return [tokenizer.bos_id], size, size
        wording = _wording(tokenizer, self.haystack)
        constant = self.keys * (sum(map(len, wording.needle)) + 7)
        constant += sum(map(len, wording.question)) + 7
        sizes = [
            sum(extreme(map(len, words)) for words in (wording.adjectives, wording.nouns))
            for extreme in (max, min)
        ]
        most, least = (constant + (self.keys + 2) * size for size in sizes)
        return [tokenizer.bos_id, *wording.intro], most, least

    def _needles(self, tokenizer: Tokenizer, random: np.random.Generator) -> list[_Needle]:
        """The needle that is asked about, then the others."""
        if self.cue != "ruler":
            return [self._dolores_park(tokenizer)]
        wording = _wording(tokenizer, self.haystack)
        pairs = len(wording.adjectives) * len(wording.nouns)
        keys = random.choice(pairs, size=self.keys, replace=False).tolist()
        values = random.integers(10**6, 10**7, size=self.keys).tolist()
        needles = []
        for key, value in zip(keys, values, strict=True):
            adjective, noun = divmod(key, len(wording.nouns))
            words = wording.adjectives[adjective] + wording.nouns[noun]
            before, middle, after = wording.needle
            first, second, third = wording.question
            number = prompts.digits(tokenizer, value, task="needle")
            question = first + words + second + words + third
            needles.append(_Needle(before + words + middle, number, after, question))
        return needles

    def _dolores_park(self, tokenizer: Tokenizer) -> _Needle:
        encode = prompts.encoder(tokenizer)
        question = encode("What is the best thing to do in San Francisco? Answer:")
        start = encode(" The best thing to do in San Francisco is")
        value = encode(" eat a sandwich and sit in Dolores Park on a sunny day.")
        line = encode("\n")
        before = line + (question if self.cue == "easy" else [])
        needle_start = start
        if self.cue == "gkamradt":
            needle_start = encode("The best thing to do in San Francisco is")
        return _Needle(before + needle_start, value, line, line + question + start)

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 1 / (9 * 10**6) if self.cue == "ruler" else 0.0


def _nearest(wished: np.ndarray, places: np.ndarray, within: float) -> np.ndarray:
    """int `[n]`: the nearest of `places`, or the wished place where none is `within` reach."""
    wished = np.rint(wished).astype(int)
    if not len(places):
        return wished
    gaps = np.abs(wished[:, None] - places)
    closest = places[gaps.argmin(axis=1)]
    return np.where(gaps.min(axis=1) <= within, closest, wished)


class DepthGrid(NamedTuple):
    """A heat map of needles found.

    Attributes:
      lengths: int `[A]`, context lengths, tokens, rising.
      depths: float `[D]`, 0 is the start of the context and 1 its end.
      accuracy: float `[A, D]`, share of exact matches; NaN where nothing was asked.
      counts: int `[A, D]`, answers asked.
    """

    lengths: np.ndarray
    depths: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray


def depth_grid(rows: Rows, num_depths: int = DEPTHS) -> DepthGrid:
    """Accuracy by context length and depth, 1 - distance / length, to the nearest of a grid."""
    lengths, row = np.unique(rows["length"], return_inverse=True)
    depth = 1 - rows["distance"] / rows["length"]
    column = np.rint(np.clip(depth, 0, 1) * (num_depths - 1)).astype(int)
    counts, found = np.zeros((2, len(lengths), num_depths), int)
    np.add.at(counts, (row, column), 1)
    np.add.at(found, (row, column), rows["exact_match"].astype(int))
    accuracy = np.where(counts, found / np.maximum(counts, 1), np.nan)
    return DepthGrid(lengths, np.linspace(0, 1, num_depths), accuracy, counts)
