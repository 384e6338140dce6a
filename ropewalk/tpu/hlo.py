"""Collectives of a compiled program, read from the text of `jax.stages.Compiled.as_text()`.

Every iteration of a loop counts; XLA's own cost analysis counts the body of a loop once.
"""

import collections
import dataclasses
import math
import re
from typing import NamedTuple

# An array's type: bf16[8,16].
_SHAPE = re.compile(r"([a-z]+(\d*)[a-z0-9]*)\[([\d,]*)\]")
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


class _Instruction(NamedTuple):
    type: str
    opcode: str
    rest: str  # operands and attributes


def collectives(text: str) -> list[Collective]:
    """Return the collectives of a program.

    An asynchronous collective appears in several fusions (its start, steps and end) with the same
    channel, and counts once.
    """
    entry, computations = _parse(text)
    runs: collections.Counter[str] = collections.Counter()
    fused: set[str] = set()  # computations that are the body of one instruction

    def visit(name: str, times: int) -> None:
        runs[name] += times
        for instruction in computations[name].values():
            is_loop = instruction.opcode == "while"
            for called in _called(instruction):
                if instruction.opcode not in _CALLS:
                    fused.add(called)
                visit(called, times * (_trips(instruction, computations) if is_loop else 1))

    visit(entry, 1)
    result: dict[str, Collective] = {}
    for computation, times in runs.items():
        for name, instruction in computations[computation].items():
            # The type of a pair's end is that of the results; the start has the attributes.
            kind, rest = instruction.opcode.removesuffix("-done"), instruction.rest
            if kind not in KINDS:
                continue
            if kind != instruction.opcode:
                rest = computations[computation][_names(rest)[0]].rest
            group, num_bytes = _group_size(rest), _num_bytes(instruction.type)
            if kind == "reduce-scatter":
                num_bytes *= group
            # libtpu writes a reduce-scatter as an all-reduce of which each chip keeps a slice.
            if kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
                kind = "reduce-scatter"
            channel = re.search(r"channel_id=\d+", rest)
            key = channel[0] if channel and computation in fused else name
            result[key] = Collective(kind, times, num_bytes, group)
    return [collective for collective in result.values() if collective.group > 1]


def _parse(text: str) -> tuple[str, dict[str, dict[str, _Instruction]]]:
    """Return the name of the entry, and the instructions of each computation by name."""
    entry, computations, current = "", {}, {}
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" ") and "->" in line:
            name = line.removeprefix("ENTRY ").split(" ")[0].lstrip("%")
            current = computations[name] = {}
            entry = name if line.startswith("ENTRY") else entry
        elif match := re.match(r" +(?:ROOT )?%?([\w.\-]+) = (.*)", line):
            name, right = match.groups()
            # The opcode is the first word with a parenthesis; a type has none, or begins with one.
            opcode = re.search(r" ([a-z][a-z0-9\-]*)\(", f" {right}" if right[0] != "(" else right)
            if opcode:
                start = opcode.start() - (right[0] != "(")
                current[name] = _Instruction(right[: max(0, start)], opcode[1], right[start:])
    return entry, computations


def _called(instruction: _Instruction, attributes: str = "") -> list[str]:
    """Return the computations named by attributes of an instruction; by default those it runs."""
    attributes = attributes or _CALLS.get(instruction.opcode, "calls")
    values = re.findall(rf"\b(?:{attributes})=(\{{[^}}]*\}}|[^\s,]+)", instruction.rest)
    return re.findall(r"[\w.\-]+", " ".join(values))


def _trips(loop: _Instruction, computations: dict[str, dict[str, _Instruction]]) -> int:
    """Return the iterations that XLA knows, or the number that the counter is compared with."""
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest):
        return int(known[1])
    (condition,) = _called(loop, "condition")
    constants = (i.rest for i in computations[condition].values() if i.opcode == "constant")
    return max(map(int, re.findall(r"constant\((\d+)\)", " ".join(constants))), default=1)


def _names(text: str) -> list[str]:
    return re.findall(r"%([\w.\-]+)", text)


def _num_bytes(text: str) -> int:
    """Return the bytes of all arrays of a type."""
    return sum(
        math.prod(int(n) for n in dims.split(",") if n)
        * (8 if dtype == "pred" else int(digits or 0))
        // 8
        for dtype, digits, dims in _SHAPE.findall(text)
    )


def _group_size(text: str) -> int:
    """Return the number of chips of a group, in any of XLA's notations.

    {{0,1},{2,3}} | [2,4]<=[8] | [2,4]<=[4,2]T(1,0) | mesh['a'=2,'b'=4] {'b'} | source_target_pairs
    """
    if "source_target_pairs=" in text:
        return 2
    _, _, groups = text.partition("replica_groups=")
    if groups.startswith("mesh["):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", groups.partition("]")[0]))
        chosen = groups.partition("{")[2].partition("}")[0]
        # A part of an axis: 'b':(2)8 are 8 of the chips along b, after an outer part of 2.
        axes = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", chosen)
        return math.prod(int(part or sizes[name]) for name, part in axes)
    if groups.startswith("["):
        return int(re.findall(r"(\d+)\]<=", groups)[0])
    return groups.partition("}")[0].count(",") + 1 if groups else 1
