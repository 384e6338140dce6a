"""Collectives and memory traffic of a compiled program, read from its text.

XLA's own cost analysis counts the body of a loop once; this module counts every iteration. The text
is that of `jax.stages.Compiled.as_text()`, scheduled and with memory spaces.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# An array's type, the first number in it, its sizes, its layout: bf16[8,16]{1,0:T(8,128)S(1)}.
_SHAPE = re.compile(r"([a-z]+(\d*)[a-z0-9]*)\[([\d,]*)\](?:\{([^}]*)\})?")
KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
# Instructions that move no data.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional"}
_FREE |= {"call", "partition-id", "replica-id", "after-all", "opt-barrier", "iota"}
# XLA's numbers of memory spaces, as in S(5); an array without one is in HBM.
HBM, HOST = 0, 5


@dataclasses.dataclass(frozen=True)
class Collective:
    """A transfer between chips.

    Attributes:
      kind: "all-gather", "reduce-scatter", "all-reduce", "all-to-all" or "collective-permute".
      count: executions per step.
      num_bytes: of the full array: the result of an all-gather, the operand of a reduce-scatter.
      group: number of chips that take part together.
      hosts: number of hosts that these chips belong to; always 1 on a TPU slice.
    """

    kind: str
    count: int
    num_bytes: int
    group: int
    hosts: int = 1

    @property
    def wire_bytes(self) -> float:
        """Least number of bytes that a chip receives in all executions.

        A gather, a scatter or an exchange receives the array without the chip's own part; an
        all-reduce receives twice that (Patarasuk and Yuan 2009).
        """
        if self.kind == "collective-permute":
            return self.count * self.num_bytes
        return self._received(self.group)

    @property
    def network_bytes(self) -> float:
        """Part of `wire_bytes` that comes from other hosts, if the chips of a host share it.

        A host receives the array without its own part once, and each of its chips a share of that.
        """
        if self.kind == "collective-permute":  # in the worst case: the pairs may lie within hosts
            return self.wire_bytes if self.hosts > 1 else 0.0
        return self._received(self.hosts) * self.hosts / self.group

    def _received(self, parts: int) -> float:
        passes = 2 if self.kind == "all-reduce" else 1
        return self.count * passes * self.num_bytes * (parts - 1) / parts


class _Instruction(NamedTuple):
    name: str
    opcode: str
    type: str
    operands: list[str]
    rest: str
    root: bool


class Program:
    """A compiled program, parsed."""

    def __init__(self, text: str, data_trips: int = 1, chips_per_host: int | None = None):
        """Parse the text.

        Args:
          text: of the compiled program.
          data_trips: iterations of loops whose length depends on data.
          chips_per_host: consecutive devices that are one host; None: all of them.
        """
        self._data_trips, self._chips_per_host = data_trips, chips_per_host
        self._computations: dict[str, list[_Instruction]] = {}
        entry = ""
        current: list[_Instruction] = []
        for line in text.splitlines():
            if line.endswith("{") and not line.startswith(" ") and "->" in line:
                name = line.removeprefix("ENTRY ").split(" ")[0].lstrip("%")
                current = self._computations.setdefault(name, [])
                if line.startswith("ENTRY"):
                    entry = name
            elif " = " in line and line.startswith(" "):
                current.append(_parse(line))
        self._computations = {
            name: list(_join_pairs(instructions))
            for name, instructions in self._computations.items()
        }
        # Executions of each computation per step, and those that are the body of one instruction.
        self._runs: collections.Counter[str] = collections.Counter()
        self._fused: set[str] = set()
        if entry:
            self._visit(entry, 1)

    def _visit(self, name: str, times: int) -> None:
        """Add `times` executions of a computation, and of those that it calls."""
        self._runs[name] += times
        for instruction in self._computations[name]:
            count = times * (self._trips(instruction) if instruction.opcode == "while" else 1)
            for called in _called(instruction):
                if instruction.opcode not in _CALLS:
                    self._fused.add(called)
                self._visit(called, count)

    def _trips(self, loop: _Instruction) -> int:
        """Return the iterations that XLA knows, or the number that the counter is compared with."""
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest):
            return int(known[1])
        (condition,) = _called(loop, "condition")
        text = " ".join(i.rest for i in self._computations[condition] if i.opcode == "constant")
        return max(map(int, re.findall(r"constant\((\d+)\)", text)), default=self._data_trips)

    def collectives(self) -> list[Collective]:
        """Return the program's collectives.

        An asynchronous collective appears in several fusions (its start, steps and end) with the
        same channel, and counts once.
        """
        result: dict[str, Collective] = {}
        for name, times in self._runs.items():
            # libtpu writes a reduce-scatter as an all-reduce of which each chip keeps a slice.
            scatters = name.startswith("all-reduce-scatter")
            for instruction in self._computations[name]:
                kind = instruction.opcode
                if kind not in KINDS:
                    continue
                if kind == "all-reduce" and scatters:
                    kind = "reduce-scatter"
                chips = _first_group(instruction.rest)
                group = len(chips)
                per_host = self._chips_per_host or math.inf
                hosts = len({chip // per_host for chip in chips})
                num_bytes = _num_bytes(instruction.type)
                if instruction.opcode == "reduce-scatter":
                    num_bytes *= group
                channel = re.search(r"channel_id=(\d+)", instruction.rest)
                key = channel[0] if channel and name in self._fused else instruction.name
                result[key] = Collective(kind, times, num_bytes, group, hosts)
        return [collective for collective in result.values() if collective.group > 1]

    def memory_bytes(self, space: int = HBM) -> float:
        """Return the bytes read from and written to HBM, or the host's memory, in a step.

        Arrays in the chip's other memories do not count. An instruction reads its operands and
        writes its result once; a slice, also one in a fusion, reads what it writes.
        """
        total = 0.0
        for name, times in self._runs.items():
            if name in self._fused:
                continue
            types = {i.name: i.type for i in self._computations[name]}
            for instruction in self._computations[name]:
                is_allocation = 'custom_call_target="AllocateBuffer"' in instruction.rest
                if instruction.opcode not in _FREE and not is_allocation:
                    operands = [types.get(operand, "") for operand in instruction.operands]
                    total += times * self._moved(instruction, operands, space)
        return total

    def _moved(self, instruction: _Instruction, types: list[str], space: int) -> int:
        """Return the bytes that an instruction moves in a memory; `types` are its operands'."""
        operands = [_num_bytes(type_, space) for type_ in types]
        result, called = _num_bytes(instruction.type, space), _called(instruction)
        kind = instruction.opcode
        if kind in ("dynamic-slice", "slice"):
            return (_num_bytes(instruction.type) if operands[0] else 0) + result
        if kind == "dynamic-update-slice":
            return operands[1] + (_num_bytes(types[1]) if result else 0)
        if kind != "fusion" or not called:
            return sum(operands) + result
        read = sum(self._read(called[0], i, size) for i, size in enumerate(operands) if size)
        return read + self._written(self._computations[called[0]], instruction.type, space)

    def _read(self, fusion: str, number: int, size: int) -> int:
        """Return the bytes that a fusion reads of one of its operands, which has `size` bytes."""
        body = self._computations[fusion]
        # The names of the operand: that of its parameter, and those of its bitcasts.
        names = {i.name for i in body if i.opcode == "parameter" and i.operands == [str(number)]}
        total = 0
        for user in body:
            for index in (i for i, operand in enumerate(user.operands) if operand in names):
                if user.opcode == "bitcast":
                    names.add(user.name)
                elif user.opcode == "fusion":
                    total += self._read(_called(user)[0], index, size)
                elif user.opcode == "dynamic-slice" and index == 0:
                    total += _num_bytes(user.type)
                elif not (user.opcode == "dynamic-update-slice" and index == 0):
                    return size  # an update in place reads only what it replaces
        return min(total, size)

    def _written(self, body: list[_Instruction], kind: str, space: int) -> int:
        """Return the bytes that a fusion of type `kind` writes; an update in place counts alone."""
        by_name = {i.name: i for i in body}
        (root,) = (i for i in body if i.root)
        sizes = list(_sizes(kind))
        is_tuple = root.opcode == "tuple"
        outputs = [by_name[name] for name in root.operands] if is_tuple else [root] * len(sizes)
        total = 0
        for output, (size, memory) in zip(outputs, sizes, strict=False):
            while output.opcode == "bitcast" and output.operands[0] in by_name:
                output = by_name[output.operands[0]]
            if output.opcode == "dynamic-update-slice" and output.operands[1] in by_name:
                size = _num_bytes(by_name[output.operands[1]].type)
            total += size if memory == space else 0
        return total


def _join_pairs(instructions: list[_Instruction]) -> Iterator[_Instruction]:
    """Yield each asynchronous pair as one synchronous instruction, in the place of its end.

    The type of the end is that of the results; the start's also lists operands and counters.
    """
    by_name = {instruction.name: instruction for instruction in instructions}
    for instruction in instructions:
        start = by_name.get(instruction.operands[0]) if instruction.operands else None
        if instruction.opcode.endswith("-done") and start is not None:
            opcode = start.opcode.removesuffix("-start")
            yield instruction._replace(opcode=opcode, operands=start.operands, rest=start.rest)
        elif not instruction.opcode.endswith("-start"):
            yield instruction


def _parse(line: str) -> _Instruction:
    left, right = line.strip().split(" = ", 1)
    kind, right = _balanced(right) if right.startswith("(") else right.split(" ", 1)
    opcode, _, right = right.strip().partition("(")
    inside, rest = _balanced("(" + right)
    if opcode in ("parameter", "constant"):
        operands = [inside[1:-1]]
        rest = f"{opcode}{inside}{rest}"
    else:
        operands = re.findall(r"%([\w.\-]+)", inside)
    return _Instruction(
        name=left.removeprefix("ROOT ").lstrip("%"),
        opcode=opcode,
        type=kind,
        operands=operands,
        rest=rest,
        root=left.startswith("ROOT "),
    )


def _balanced(text: str) -> tuple[str, str]:
    """Split after the parenthesis that closes the first one."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[: index + 1], text[index + 1 :]
    return text, ""


# Attributes that name the computations that an instruction runs, without those of reductions.
_CALLS = {
    "while": "body",
    "conditional": "branch_computations|true_computation|false_computation",
    "call": "to_apply",
}


def _called(instruction: _Instruction, attributes: str = "") -> list[str]:
    """Return the computations named by attributes of an instruction; by default those it runs."""
    attributes = attributes or _CALLS.get(instruction.opcode, "calls")
    values = re.findall(rf"\b(?:{attributes})=(\{{[^}}]*\}}|[^\s,]+)", instruction.rest)
    return re.findall(r"[\w.\-]+", " ".join(values))


def _sizes(text: str) -> Iterator[tuple[int, int]]:
    """Yield the bytes of each array of a type, and its memory space."""
    for dtype, digits, dims, layout in _SHAPE.findall(text):
        bits = 8 if dtype == "pred" else int(digits or 0)
        count = math.prod(int(n) for n in dims.split(",") if n)
        space = re.search(r"S\((\d+)\)", layout)
        yield count * bits // 8, int(space[1]) if space else HBM


def _num_bytes(text: str, space: int | None = None) -> int:
    """Return the bytes of all arrays of a type, or of those in one memory space."""
    return sum(size for size, memory in _sizes(text) if space in (None, memory))


def _first_group(text: str) -> list[int]:
    """Return the chips of the first group, in any of XLA's notations.

    {{0,1},{2,3}} | [2,4]<=[8] | [2,4]<=[4,2]T(1,0) | mesh['a'=2,'b'=4] {'b'} | source_target_pairs
    """
    _, pairs, groups = text.partition("source_target_pairs=")
    if not pairs:
        _, _, groups = text.partition("replica_groups=")
    if not groups:
        return [0]
    if groups.startswith("mesh["):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", groups.partition("]")[0]))
        axes = re.findall(
            r"'(\w+)'(?::\((\d+)\)(\d+))?", groups.partition("{")[2].partition("}")[0]
        )
        # A part of an axis: 'b':(2)8 are 8 of the chips along b, after an outer part of 2.
        dims, chosen = [], []
        for name, size in sizes.items():
            before, part = next(((b or 1, p or size) for a, b, p in axes if a == name), (1, 1))
            dims += [int(before), int(part), int(size) // (int(before) * int(part))]
            chosen.append(len(dims) - 2)
        grid = np.arange(math.prod(dims)).reshape(dims)
        index = tuple(slice(None) if axis in chosen else 0 for axis in range(len(dims)))
        return grid[index].ravel().tolist()
    if groups.startswith("["):
        shape, grid, _, axes = re.findall(r"\[([\d,]+)\]<=\[([\d,]+)\](T\(([\d,]+)\))?", groups)[0]
        chips = np.arange(math.prod(_integers(grid))).reshape(_integers(grid))
        chips = chips.transpose(_integers(axes) if axes else None).ravel()
        return chips[: _integers(shape)[-1]].tolist()
    return _integers(groups.partition("}")[0].strip("{"))


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
