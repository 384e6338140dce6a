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
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from ropewalk.data.keys import Entry, Pairs, Uuids, append_entries, draw_entries, draw_values
from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import prompts, text
from ropewalk.utils.checks import Bounds, Count


class _Prompt(NamedTuple):
    """Ids of a prompt without its haystack.

    Attributes:
      intro: BOS up to the haystack.
      needles: needles of the question and of other keys.
      question: from the haystack to the first answer.
      comma: between two answers.
      answers: indices of the needles whose numbers are the answers.
    """

    intro: list[int]
    needles: list[Entry]
    question: list[int]
    comma: list[int]
    answers: Sequence[int]

    @property
    def size(self) -> int:
        """Number of ids, with the answers."""
        sizes = [len(needle.ids) for needle in self.needles]
        sizes += [len(self.needles[i].number + self.comma) for i in self.answers]
        return len(self.intro + self.question) + sum(sizes) - len(self.comma)


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
      depths: number of depths, evenly spaced from the start of the haystack to its end.
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
    def _num_keys(self) -> int:
        return max(self.keys, self.queries)

    @property
    def _num_needles(self) -> int:
        return self._num_keys * self.values

    @property
    def _several(self) -> bool:
        """Return whether a question has several answers."""
        return self.queries * self.values > 1

    def _names(self, tokenizer: Tokenizer) -> Pairs | Uuids:
        return prompts.names(tokenizer) if self.key_type == "words" else Uuids(tokenizer, " ")

    def _values(self, tokenizer: Tokenizer) -> range | Uuids:
        return range(10**6, 10**7) if self.value_type == "numbers" else Uuids(tokenizer)

    def _needle(self, tokenizer: Tokenizer) -> list[list[int]]:
        """Return the ids of a needle around its key and its value."""
        # A needle between lines is a line; a needle between sentences starts with a space.
        start, end = (" ", "") if self.haystack == "text" else ("", "\n")
        return prompts.parts(
            tokenizer, f"{start}One of the special magic {self.value_type} for{{}} is: {{}}.{end}"
        )

    def _prompt(
        self,
        tokenizer: Tokenizer,
        names: Sequence[list[int]],
        numbers: Sequence[list[int]],
        queried: Sequence[int],
    ) -> _Prompt:
        """Make RULER's prompt of ids of keys and numbers; `queried` are indices of keys."""
        line = "\n" if self.haystack == "text" else ""
        number = self.value_type if self._several else self.value_type.removesuffix("s")
        some, are, are_all = ("Some", "are", "are all") if self._several else ("A", "is", "is")
        intro = prompts.begin(
            tokenizer,
            f"{some} special magic {number} {are} hidden within the following text. Make sure to "
            f"memorize it. I will quiz you about the {number} afterwards.\n",
        )
        question = prompts.parts(
            tokenizer,
            line + f"What {are_all} the special magic {number} for{{}} mentioned in the provided "
            f"text? The special magic {number} for{{}} mentioned in the provided text {are} ",
        )
        listed = "{}" + ",{}" * (len(queried) - 2) + ", and{}" * (len(queried) > 1)
        keys = prompts.fill(prompts.parts(tokenizer, listed), *(names[key] for key in queried))
        before, middle, after = self._needle(tokenizer)
        needles = [
            Entry(before + names[i // self.values] + middle, number, after)
            for i, number in enumerate(numbers)
        ]
        answers = [i for key in queried for i in range(key * self.values, (key + 1) * self.values)]
        (comma,) = prompts.parts(tokenizer, ", ")
        return _Prompt(intro, needles, prompts.fill(question, keys, keys), comma, answers)

    def _extreme_prompt(self, tokenizer: Tokenizer, extreme: Literal["longest", "shortest"]):
        """Return a prompt of the most or the fewest ids."""
        if self.cue != "ruler":
            return self._dolores_park(tokenizer)
        values, size = self._values(tokenizer), getattr(self._names(tokenizer), extreme)
        value_size = 7 if isinstance(values, range) else getattr(values, extreme)
        names, numbers = [[0] * size] * self._num_keys, [[0] * value_size] * self._num_needles
        return self._prompt(tokenizer, names, numbers, range(self.queries))

    def least_length(self, context: TaskContext) -> int:
        """Return the length with one line, or one id of text for each depth."""
        prompt = self._extreme_prompt(context.tokenizer, "longest")
        smallest = {
            "noise": len(prompts.noise_line(context.tokenizer)),
            "text": self.depths,
            "needle": len(prompt.needles[0].ids),
        }
        return prompt.size + smallest[self.haystack] - 1

    def sources(self, context: TaskContext, numbers: range) -> Iterable[tuple[int, Any]]:
        """Return a crop for each number, or None for noise."""
        if self.haystack != "text":
            return super().sources(context, numbers)
        room = context.length + 1 - self._extreme_prompt(context.tokenizer, "shortest").size
        return text.crops(context, numbers, task=self.expression, length=room)

    def document(self, context: TaskContext, sample: Sample) -> Document | list[Document]:
        """Make the same question at every depth, or one question with several answers."""
        prompt = self._draw_prompt(context, sample)
        if self._several:
            return self._at_random_depths(context, sample, prompt)
        return self._at_every_depth(context, sample, prompt)

    def _draw_prompt(self, context: TaskContext, sample: Sample) -> _Prompt:
        tokenizer, random, queried = context.tokenizer, sample.random, [0]
        if self.cue != "ruler":
            return self._dolores_park(tokenizer)
        all_names = self._names(tokenizer)
        drawn = random.choice(len(all_names), size=self._num_keys, replace=False).tolist()
        values = self._values(tokenizer)
        numbers = draw_values(context, sample, values, self._num_needles, task="needle")
        if self._several:
            queried = random.choice(self._num_keys, size=self.queries, replace=False).tolist()
        return self._prompt(tokenizer, [all_names[key] for key in drawn], numbers, queried)

    def _at_every_depth(
        self, context: TaskContext, sample: Sample, prompt: _Prompt
    ) -> list[Document]:
        needle, *distractors = prompt.needles
        hay, places, within = self._hay(context, sample, prompt, [needle])
        for other in distractors:
            position = _nearest(sample.random.integers(len(hay) + 1, size=1), places, within)
            places = places + len(other.ids) * (places >= position)
            hay = np.insert(hay, position[0], other.ids)

        wished = np.linspace(0, len(hay), self.depths)
        positions, depth = np.unique(_nearest(wished, places, within), return_index=True)
        ids, rows = hay.tolist(), []
        for position, query in zip(positions.tolist(), depth.tolist(), strict=True):
            tokens, (start,) = prompts.hide(prompt.intro, ids, [position], [needle])
            rows.append(
                prompts.append_answers(tokens, [(prompt.question, needle.number, start)], query)
            )
        return rows

    def _at_random_depths(self, context: TaskContext, sample: Sample, prompt: _Prompt) -> Document:
        random, needles = sample.random, prompt.needles
        hay, places, within = self._hay(context, sample, prompt, needles)
        # From the start of every needle to the answers: hay, itself and later needles, question.
        later = np.cumsum([len(needle.ids) for needle in needles])[::-1]
        end = len(hay) + len(prompt.question)
        far = end + int(later[0])
        wished = random.integers(len(prompt.question), far + 1, size=len(needles))
        wished = np.sort(wished)[::-1]
        wished = np.clip(end + later - wished, 0, len(hay))
        positions = np.sort(_nearest(wished, places, within)).tolist()
        # The keys are shuffled, and the numbers of a key stand in their order.
        shuffled = np.arange(self._num_keys).repeat(self.values)[random.permutation(len(needles))]
        order = np.argsort(np.argsort(shuffled, kind="stable")).tolist()
        entries = [needles[i] for i in order]
        tokens, starts = prompts.hide(prompt.intro, hay.tolist(), positions, entries)
        start_of = dict(zip(order, starts, strict=True))
        befores = [prompt.question] + [prompt.comma] * (len(prompt.answers) - 1)
        answers = [(needles[i].number, start_of[i]) for i in prompt.answers]
        return prompts.append_answers(
            tokens, [(x, *answer) for x, answer in zip(befores, answers, strict=True)]
        )

    def _hay(
        self, context: TaskContext, sample: Sample, prompt: _Prompt, needles: Sequence[Entry]
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the haystack, the places of needles in it, and their reach.

        Args:
          needles: no line of the haystack has the keys of these.
        """
        tokenizer, room = context.tokenizer, context.length + 1 - prompt.size
        if self.haystack == "text":
            hay = sample.source[0].tokens[1 : room + 1]
            places = np.flatnonzero(_sentence_ends(tokenizer)[hay]) + 1
            return hay, places, len(hay) / (self.depths - 1) / 2
        line = prompts.noise_line(tokenizer)
        hay = np.tile(line, room // len(line))
        places = np.arange(0, len(hay) + 1, len(line))
        if self.haystack == "needle":
            names, values = self._names(tokenizer), self._values(tokenizer)
            around = self._needle(tokenizer)
            _, entries = draw_entries(context, sample, names, around, values, task="needle")
            befores = [needle.before for needle in needles]
            entries = [entry for entry in entries if entry.before not in befores]
            ids: list[int] = []
            starts = append_entries(ids, entries, room, task="needle")
            sizes = [len(entry.ids) for entry in entries[: len(starts)]]
            hay, places = np.array(ids, np.int32), np.cumsum([0, *sizes])
        return hay, places, len(hay)

    def _dolores_park(self, tokenizer: Tokenizer) -> _Prompt:
        encode = prompts.encoder(tokenizer)
        question = encode("What is the best thing to do in San Francisco? Answer:")
        start = encode(" The best thing to do in San Francisco is")
        value = encode(" eat a sandwich and sit in Dolores Park on a sunny day.")
        line = encode("\n")
        cue = encode("The best thing to do in San Francisco is")
        before = line + (question + start if self.cue == "easy" else cue)
        needle = Entry(before, value, line)
        return _Prompt([tokenizer.bos_id], [needle], line + question + start, [], [0])

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
