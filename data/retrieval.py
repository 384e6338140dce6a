"""Documents that ask for something said earlier in them, at a known distance.

    kv        k1 v1 k2 v2 k1 [v1] k3 v3 k2 [v2] k3 [v3]      every key twice; its value is asked
    lagcopy   a b c d a [b  c  d  a  b  c  d]                one text again and again
    lines     line red-fox: ... <12345>   line old-map: ... <67890>   line red-fox: ... <[12345]>

(in [brackets]: answers). A document is a pure function of its arguments: the random numbers come
from a counter-based generator keyed by a hash of them, so any document can be made again, in any
order, and the splits never share one. Distances are drawn half log-uniformly, half uniformly, so
that near and far are both seen; the log-uniform half alone would send 1 in 10 to the far half.

Sources: kv is multi-query associative recall (Arora et al., 2312.04927) with chosen distances,
lagcopy the repeated text of Su's blog and of Olsson et al. (2022), lines LongEval's (LongChat,
2023) as a completion that a base model can answer.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable

import numpy as np

from data.tokenizer import NUM_KEYS, NUM_VALUES, Tokenizer
from data.words import ADJECTIVES, HELD_OUT_NOUNS, NOUNS

QUERIES_PER_LINES_DOCUMENT = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalDocument:
    """Ids with questions in them. The answers are in place: teacher forcing.

    Attributes:
      tokens: int32 `[n]`, n <= length + 1, BOS at 0.
      answers: int32 `[Q, 3]`, one row an answer: index of its first id, number of ids, distance.
        The distance, in tokens, is from the id that asked for to the position whose logits answer:
        tokens[start - 1] is that position, tokens[start - 1 - distance] the first id of the same
        content said earlier.
    """

    tokens: np.ndarray
    answers: np.ndarray

    def loss_mask(self) -> np.ndarray:
        """float32 `[n - 1]`: 1 at the positions whose logits give an answer's ids."""
        mask = np.zeros(len(self.tokens) - 1, np.float32)
        start, count = self.answers[:, 0], self.answers[:, 1]
        for i in range(count.max(initial=0)):
            mask[start[count > i] - 1 + i] = 1
        return mask


def make(
    task: str,
    tokenizer: Tokenizer,
    length: int,
    *,
    seed: int,
    split: str,
    index: int,
    distances: tuple[int, int] | None = None,
) -> RetrievalDocument:
    """Document number `index` of `task`: a pure function of the arguments.

    Args:
      task: "kv", "lagcopy" or "lines".
      length: positions a model sees; the document has up to length + 1 ids.
      split: "train", or anything else for documents that training never holds ("lines" then also
        uses nouns never seen in training).
      distances: ask at these, first and last, in tokens, as far as there is room for them; the
        other questions stand at the nearest distances that do fit.

    Raises:
      ValueError: if there is no such task, or the document does not fit `length`; it names the
        shortest length that does. If no question can be asked at these `distances`.
    """
    task_maker = _maker(task)
    arguments = (seed, task, split, index, length)
    if distances is not None:
        arguments += (int(distances[0]), int(distances[1]))
    key = hashlib.blake2b(repr(arguments).encode(), digest_size=16)
    bits = np.random.Philox(key=int.from_bytes(key.digest(), "little"))
    return task_maker(tokenizer, length, split, np.random.Generator(bits), distances)


def chance(task: str, tokenizer: Tokenizer) -> float:
    """Probability of a right answer for a model that knows the format and nothing of the past."""
    _maker(task)
    return {"kv": 1 / NUM_VALUES, "lagcopy": 1 / len(tokenizer.fillers), "lines": 1 / 90_000}[task]


def _maker(task: str) -> Callable[..., RetrievalDocument]:
    makers = {"kv": _kv, "lagcopy": _lagcopy, "lines": _lines}
    if task not in makers:
        raise ValueError(f"no retrieval task {task!r}; there are {', '.join(makers)}")
    return makers[task]


def _possible(distances: tuple[int, int], shortest: int, longest: int) -> tuple[int, int]:
    """The part of `distances` at which a document can ask; all in tokens, last ones included."""
    low, high = max(distances[0], shortest), min(distances[1], longest)
    if low > high:
        raise ValueError(
            f"no question can be asked at distances {distances[0]} to {distances[1]}; at this "
            f"length there are {shortest} to {longest}"
        )
    return low, high


def _distances(rng: np.random.Generator, count: int, low: int, high: int) -> np.ndarray:
    """int64 `[count]` in [low, high): half of them log-uniform, half uniform, in no order."""
    u, uniform = rng.random((2, count))
    far = low + u * (high - low)
    near = np.exp(np.log(low) + u * np.log(high / low))
    return np.where(uniform < 0.5, far, near).astype(np.int64)


# kv


def _kv(
    tokenizer: Tokenizer,
    length: int,
    split: str,
    rng: np.random.Generator,
    distances: tuple[int, int] | None,
) -> RetrievalDocument:
    """Slots of two ids: pairs of the wished distances where they fit, filler in the rest."""
    if length < 4:
        raise ValueError(f"kv does not fit length={length}; the shortest that works is 4")
    num_slots = length // 2
    num_pairs = min(NUM_KEYS, num_slots // 2)
    nearest, farthest = 1, num_slots - 1  # in slots: keys stand 2 tokens a slot apart, less one
    if distances is not None:
        low, high = _possible(distances, 1, 2 * farthest - 1)
        nearest, farthest = low // 2 + 1, max(low // 2 + 1, (high + 1) // 2)
    wished = _distances(rng, num_pairs, nearest, farthest + 1)
    slots = _place(-np.sort(-wished), num_slots, rng)  # far ones first: they have the fewest places

    keys = tokenizer.keys[rng.permutation(NUM_KEYS)[:num_pairs]]
    values = tokenizer.values[rng.integers(NUM_VALUES, size=num_pairs)]
    tokens = np.empty(1 + 2 * num_slots, np.int32)
    tokens[0] = tokenizer.bos_id
    if 2 * num_pairs < num_slots:
        tokens[1:] = tokenizer.fillers[rng.integers(len(tokenizer.fillers), size=2 * num_slots)]
    first, second = 1 + 2 * slots  # where the keys stand
    for place in (first, second):
        tokens[place], tokens[place + 1] = keys, values
    # The second key's logits must give what follows the first key.
    answers = np.stack([second + 1, np.ones_like(second), second - (first + 1)], axis=1)
    return RetrievalDocument(tokens=tokens, answers=answers[np.argsort(second)].astype(np.int32))


def _place(wished: np.ndarray, num_slots: int, rng: np.random.Generator) -> np.ndarray:
    """Two free slots for every wished distance: int64 `[2, pairs]`, earlier ones first.

    Sets of slots are the bits of one integer, which makes "both ends free" a shift and an and. A
    distance that no longer fits becomes the nearest that does, from the first free slot.
    """
    free = (1 << num_slots) - 1
    pairs = []
    turns = rng.integers(num_slots, size=len(wished)).tolist()
    for distance, turn in zip(wished.tolist(), turns, strict=True):
        fitting = free & (free >> distance)
        if fitting:
            later = fitting >> turn << turn  # a random one: the first from a random slot on
            slot = _lowest(later or fitting)
        else:
            slot = _lowest(free)
            above = free >> (slot + 1)
            far, near = above >> (distance - 1), above & ((1 << (distance - 1)) - 1)
            gaps = [distance + _lowest(far)] if far else []
            gaps += [near.bit_length()] if near else []
            distance = min(gaps, key=lambda gap: abs(gap - distance))
        free &= ~(1 << slot | 1 << (slot + distance))
        pairs.append((slot, slot + distance))
    return np.array(pairs).T


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


# lagcopy


def _lagcopy(
    tokenizer: Tokenizer,
    length: int,
    split: str,
    rng: np.random.Generator,
    distances: tuple[int, int] | None,
) -> RetrievalDocument:
    """Random pieces repeated to fill the length; every id that the past determines is an answer.

    A text no longer than the alphabet holds no piece twice, so one piece of context is enough.
    """
    if length < 4:
        raise ValueError(f"lagcopy does not fit length={length}; the shortest that works is 4")
    shortest, longest = 2, length - 2
    if distances is not None:  # one less than the lag
        low, high = _possible(distances, shortest - 1, longest - 1)
        shortest, longest = low + 1, high + 1
    lag = int(_distances(rng, 1, shortest, longest + 1)[0])
    fillers = tokenizer.fillers
    blocks = [rng.permutation(len(fillers)) for _ in range(0, lag, len(fillers))]
    text = fillers[np.concatenate(blocks)[:lag]]
    tokens = np.empty(length + 1, np.int32)
    tokens[0], tokens[1:] = tokenizer.bos_id, np.resize(text, length)
    # That the text starts again is news, so its second copy is asked from its second id on.
    start = np.arange(lag + 2, length + 1)
    answers = np.stack([start, np.ones_like(start), np.full_like(start, lag - 1)], axis=1)
    return RetrievalDocument(tokens=tokens, answers=answers.astype(np.int32))


# lines


@dataclasses.dataclass(frozen=True)
class _LineParts:
    """Ids of every part of a line, encoded once and joined as ids: text is never encoded again."""

    start: list[int]
    adjectives: list[list[int]]
    nouns: list[list[int]]
    middle: list[int]
    end: list[int]
    longest: int  # ids of the longest line


@functools.lru_cache(maxsize=8)
def _line_parts(tokenizer: Tokenizer, held_out: bool) -> _LineParts:
    inside = functools.partial(tokenizer.encode, inside=True)
    start, middle, end = inside("line "), inside(": REGISTER_CONTENT is <"), inside(">\n")
    adjectives = [inside(word) for word in ADJECTIVES]
    nouns, held_out_nouns = ([inside("-" + word) for word in w] for w in (NOUNS, HELD_OUT_NOUNS))
    # Over all words: what fits in training fits in evaluation.
    words = max(map(len, adjectives)) + max(map(len, nouns + held_out_nouns))
    longest = len(start) + words + len(middle) + 5 + len(end)
    nouns = held_out_nouns if held_out else nouns
    return _LineParts(start, adjectives, nouns, middle, end, longest)


def _lines(
    tokenizer: Tokenizer,
    length: int,
    split: str,
    rng: np.random.Generator,
    distances: tuple[int, int] | None,
) -> RetrievalDocument:
    """Lines with keys of their own, then up to four lines that repeat some of them."""
    parts = _line_parts(tokenizer, split != "train")
    if length < 3 * parts.longest:
        raise ValueError(
            f"lines does not fit length={length}; the shortest that works with this tokenizer "
            f"is {3 * parts.longest}"
        )
    num_keys = len(parts.adjectives) * len(parts.nouns)
    most = min(length // (len(parts.start) + 7 + len(parts.middle) + len(parts.end)) + 1, num_keys)
    keys = rng.choice(num_keys, size=most, replace=False)
    contents = rng.integers(10_000, 100_000, size=most)
    digits = tokenizer.digit_ids[contents[:, None] // 10 ** np.arange(4, -1, -1) % 10].tolist()
    lines = []
    for adjective, noun, content in zip(
        *(part.tolist() for part in divmod(keys, len(parts.nouns))), digits, strict=True
    ):
        before = [*parts.start, *parts.adjectives[adjective], *parts.nouns[noun], *parts.middle]
        lines.append((before, content + parts.end))

    sizes = np.array([len(before) + len(after) for before, after in lines])
    ends = 1 + np.cumsum(sizes)
    # Room for the queries first: each may repeat the longest line of those that fit.
    num_queries = min(QUERIES_PER_LINES_DOCUMENT, length // parts.longest // 2)
    num_lines = int(np.searchsorted(ends, length + 1 - num_queries * sizes.max(), side="right"))
    if num_lines == num_keys:
        raise ValueError(f"lines does not fit length={length}: it has {num_keys} different keys")
    tokens = [tokenizer.bos_id]
    contents_at = []
    for before, after in lines[:num_lines]:
        tokens += before
        contents_at.append(len(tokens))
        tokens += after

    unasked = np.array(contents_at)
    answers = []
    nearest, farthest = 1, length - 1
    if distances is not None:
        # A line is chosen from where its repetition begins; its content is asked a head later.
        head = len(lines[0][0]) - 1
        low, high = _possible(distances, head + 1, length - 1)
        nearest, farthest = max(low - head, 1), high - head
    for wished in _distances(rng, num_queries, nearest, farthest + 1).tolist():
        asked = int(np.argmin(np.abs(len(tokens) - unasked - wished)))
        before, after = lines[contents_at.index(unasked[asked])]
        tokens += before
        answers.append((len(tokens), 5, len(tokens) - 1 - unasked[asked]))
        tokens += after
        unasked = np.delete(unasked, asked)
    return RetrievalDocument(tokens=np.array(tokens, np.int32), answers=np.array(answers, np.int32))
