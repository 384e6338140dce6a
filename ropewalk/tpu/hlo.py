"""Collectives of a compiled program, read from the text of `jax.stages.Compiled.as_text()`.

Every iteration of a loop counts; XLA's own cost analysis counts the body of a loop once.
"""

import collections
import dataclasses
import math
import re

# The sizes of an array in its type: bf16[8,16].
_SHAPE = re.compile(r"([a-z]+(\d*)[a-z0-9]*)\[([\d,]*)\]")
# Name, type, opcode, then operands and attributes. A type has no word before a parenthesis.
_INSTRUCTION = re.compile(r" +(?:ROOT )?%?([\w.\-]+) = (.*?) ?\b([a-z][a-z0-9\-]*)\((.*)")
KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
# Attributes that name the computations that an instruction runs, without those of reductions.
_CALLS = {
    "while": "body",
    "conditional": "branch_computations|true_computation|false_computation",
    "call": "to_apply",
}


@dataclasses.dataclass(frozen=True)
class Collective:
    """A transfer between chips.

    Attributes:
      kind: one of `KINDS`.
      count: executions per step.
      num_bytes: of the full array: the result of an all-gather, the operand of a reduce-scatter.
      group: number of chips that take part together.
    """

    kind: str
    count: int
    num_bytes: int
    group: int

    @property
    def received(self) -> float:
        """Least number of bytes that a chip receives in all executions.

        A gather, a scatter or an exchange receives the array without the chip's own part; an
        all-reduce receives twice that (Patarasuk and Yuan 2009).
        """
        if self.kind == "collective-permute":
            return self.count * self.num_bytes
        passes = 2 if self.kind == "all-reduce" else 1
        return self.count * passes * self.num_bytes * (self.group - 1) / self.group


def collectives(text: str) -> list[Collective]:
    """Return the collectives of a program.

    An asynchronous collective appears in several fusions (its start, steps and end) with the same
    channel, and counts once.
    """
    # Of each instruction its type, opcode, and rest.
    computations: dict[str, dict[str, tuple[str, str, str]]] = {}
    entry = current = ""
    for line in text.splitlines():
        if match := re.match(r"(ENTRY )?%?(\S+) .*->.*\{$", line):
            current, entry = match[2], match[2] if match[1] else entry
            computations[current] = {}
        elif match := _INSTRUCTION.match(line):
            computations[current][match[1]] = match[2], match[3], match[4]
    runs: collections.Counter[str] = collections.Counter()
    fused: set[str] = set()  # computations that are the body of one instruction

    def visit(name: str, times: int) -> None:
        runs[name] += times
        for _, opcode, rest in computations[name].values():
            trips = _trips(rest, computations) if opcode == "while" else 1
            for called in _called(rest, _CALLS.get(opcode, "calls")):
                fused.update([called] * (opcode not in _CALLS))
                visit(called, times * trips)

    visit(entry, 1)
    result: dict[str, Collective] = {}
    for computation, times in runs.items():
        for name, (type_, opcode, rest) in computations[computation].items():
            # The type of a pair's end is that of the results; the start has the attributes.
            kind = opcode.removesuffix("-done")
            if kind not in KINDS:
                continue
            if kind != opcode:
                *_, rest = computations[computation][re.findall(r"%([\w.\-]+)", rest)[0]]
            group = _group_size(rest)
            num_bytes = _num_bytes(type_) * (group if kind == "reduce-scatter" else 1)
            # libtpu writes a reduce-scatter as an all-reduce of which each chip keeps a slice.
            if kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
                kind = "reduce-scatter"
            channel = re.search(r"channel_id=\d+", rest)
            key = channel[0] if channel and computation in fused else name
            result[key] = Collective(kind, times, num_bytes, group)
    return [collective for collective in result.values() if collective.group > 1]


def _called(rest: str, attributes: str) -> list[str]:
    values = re.findall(rf"\b(?:{attributes})=(\{{[^}}]*\}}|[^\s,]+)", rest)
    return re.findall(r"[\w.\-]+", " ".join(values))


def _trips(rest: str, computations: dict) -> int:
    """Return the iterations that XLA knows, or the number that the counter is compared with."""
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', rest):
        return int(known[1])
    condition = computations[_called(rest, "condition")[0]].values()
    numbers = [re.match(r"\d+", rest) for _, opcode, rest in condition if opcode == "constant"]
    return max((int(number[0]) for number in numbers if number), default=1)


def _num_bytes(text: str) -> int:
    """Return the bytes of all arrays of a type."""
    arrays = _SHAPE.findall(text)
    bits = [8 if dtype == "pred" else int(digits or 0) for dtype, digits, _ in arrays]
    counts = [math.prod(map(int, filter(None, sizes.split(",")))) for *_, sizes in arrays]
    return sum(n * size // 8 for n, size in zip(counts, bits, strict=True))


def _group_size(text: str) -> int:
    """Return the number of chips of a group, in any of XLA's notations.

    {{0,1},{2,3}} | [2,4]<=[8] | [2,4]<=[4,2]T(1,0) | mesh['a'=2,'b'=4] {'b'} | source_target_pairs
    """
    if "source_target_pairs=" in text:
        return 2
    _, _, groups = text.partition("replica_groups=")
    if groups.startswith("mesh["):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", groups.partition("]")[0]))
        # A part of an axis: 'b':(2)8 are 8 of the chips along b, after an outer part of 2.
        axes = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", groups.partition("{")[2].partition("}")[0])
        return math.prod(int(part or sizes[name]) for name, part in axes)
    if groups.startswith("["):
        return int(re.findall(r"(\d+)\]<=", groups)[0])
    return groups.partition("}")[0].count(",") + 1 if groups else 1
