"""Findings of the probes: for each number, the runs with the lowest and the highest value."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from probes.probe import Probe, format_number
from utils.messages import printable

ByLabel = Mapping[str, Sequence[Probe]]  # results of seeds, by the member's label


def list_findings(results: Mapping[type[Probe], ByLabel]) -> list[str]:
    """Return one line per number: its range over members, and the heads that attain it."""
    return [line for by_label in results.values() for line in _findings(by_label)]


def format_findings(findings: Sequence[str], width: int) -> str:
    """Return findings for a terminal; further lines of one are indented."""
    lines = (textwrap.fill(line, width, subsequent_indent="  ") for line in findings)
    return printable("\n".join(lines))


def _findings(by_label: ByLabel) -> Iterator[str]:
    first = next(iter(by_label.values()))[0]
    for name in first.numbers():
        numbers = {label: [seed.numbers()[name] for seed in by_label[label]] for label in by_label}
        means = {
            label: float(np.mean([number.value for number in seeds]))
            for label, seeds in numbers.items()
        }
        known = {label: mean for label, mean in means.items() if not np.isnan(mean)}
        if not known:
            continue
        ends = dict.fromkeys([min(known, key=known.__getitem__), max(known, key=known.__getitem__)])
        if len(set(known.values())) == 1:
            ends = dict.fromkeys([next(iter(known))])
        texts = []
        for label in ends:
            head = by_label[label][0].heads_of().get(name, "")
            subject = ", ".join(filter(None, [label, head and f"head {head}"]))
            if len(ends) == 1 < len(known):
                subject = "all members"
            texts.append(f"{format_number(numbers[label])} ({subject})")
        yield f"{name}: {' to '.join(texts)}"
