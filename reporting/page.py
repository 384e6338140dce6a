"""The page: one HTML file with everything inside, made of plain templates beside this file."""

import dataclasses
import html
import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.colors

from evals.estimate.effective_context import MEASURED, NOT_LEARNED, Estimate
from model import rotary as rotary_lib
from model.rotary import Rotary
from reporting.members import Member, learned, tasks
from reporting.style import Look, looks
from theory.predictions import HORIZON

_FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure of the page.

    Attributes:
      svg: an `<svg>` element, without XML prolog.
      alternative: what it shows, for who cannot see it.
      caption: HTML under it.
    """

    svg: str
    alternative: str
    caption: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers of the page.

    Attributes:
      heads: of the columns; the first one names the row.
      rows: as text, with the index of the member each is about (None: of several).
      caption: HTML under it.
    """

    heads: Sequence[str]
    rows: Sequence[tuple[int | None, Sequence[str]]]
    caption: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, and figures and tables of which those with a name are shown one at a time."""

    title: str
    parts: Sequence[Picture | Table] = ()
    choices: Mapping[str, Picture | Table] = dataclasses.field(default_factory=dict)


def build(
    members: Sequence[Member],
    *,
    effective_context: Picture,
    sections: Sequence[Section],
    missing: Sequence[tuple[str, str]],
    further: Sequence[tuple[str, str]],
    commands: Sequence[str],
    provenance: Sequence[str],
) -> str:
    """The whole page.

    Args:
      members: in the page's order.
      effective_context: the leading figure.
      sections: what else was measured.
      missing: (what is not there, the command that makes it).
      further: the same of what nobody asked for yet.
      commands: shell lines that make this page again.
      provenance: versions and fingerprints, one sentence each.
    """
    names = sorted({member.config.name for member in members})
    seeds = max(len(member.runs) for member in members)
    lengths = sorted({member.trained_length for member in members})
    eyebrow = (
        f"ropewalk · {', '.join(names)} · {_plural(len(members), 'member')} · "
        f"{_plural(seeds, 'seed')} · trained on {', '.join(f'{n:,}' for n in lengths)} tokens"
    )
    parts = [
        _figure(effective_context),
        _table(members),
        *map(_section, sections),
        _further(further),
        _configurations(members),
        "<h2>How to repeat it</h2>\n<pre>" + html.escape("\n".join(commands)) + "</pre>",
    ]
    return _template("page.html").substitute(
        title=html.escape(f"{', '.join(names)} · ropewalk"),
        style=_read("page.css"),
        script=_read("page.js"),
        eyebrow=html.escape(eyebrow),
        question="<br>".join(dict.fromkeys(html.escape(m.config.question) for m in members)),
        finding=_finding(members),
        missing=_missing(missing),
        contents=_contents(sections),
        sections="\n".join(part for part in parts if part),
        footer=" ".join(html.escape(sentence) for sentence in provenance),
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def _template(name: str) -> string.Template:
    return string.Template(_read(name))


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _figure(picture: Picture) -> str:
    label = html.escape(picture.alternative, quote=True)
    # No wider than 10 inches across the page would make it: text has one size in all figures.
    width = re.search(r'viewBox="0 0 ([\d.]+)', picture.svg)
    style = f' style="max-width: {float(width[1]) / 720 * 66:.1f}rem"' if width else ""
    svg = picture.svg.replace("<svg ", f'<svg role="img" aria-label="{label}"{style} ', 1)
    return f"<figure>\n{svg}\n<figcaption>{picture.caption}</figcaption>\n</figure>"


def _part(part: Picture | Table) -> str:
    if isinstance(part, Picture):
        return _figure(part)
    rows = [
        f"<tr{'' if index is None else f' class=member-{index}'}>"
        f"{_cells(map(html.escape, cells), 'td')}</tr>"
        for index, cells in part.rows
    ]
    return (
        f'<div class="scroll"><table>\n<caption>{part.caption}</caption>\n'
        f"<thead><tr>{_cells(map(html.escape, part.heads), 'th')}</tr></thead>\n"
        f"<tbody>{chr(10).join(rows)}</tbody></table></div>"
    )


def _section(section: Section) -> str:
    lines = [f'<h2 id="{_slug(section.title)}">{html.escape(section.title)}</h2>']
    if section.choices:
        # Without a script, or printed, all of them stand below each other.
        buttons = "".join(
            f'<button type="button">{html.escape(name)}</button>' for name in section.choices
        )
        options = [f'<div class="option">{_part(part)}</div>' for part in section.choices.values()]
        tabs = f'<p class="tabs">{buttons}</p>\n' if len(options) > 1 else ""
        lines.append(f'<div class="choice">{tabs}{chr(10).join(options)}</div>')
    return "\n".join([*lines, *map(_part, section.parts)])


def _contents(sections: Sequence[Section]) -> str:
    links = [
        f'<a href="#{_slug(section.title)}">{html.escape(section.title)}</a>'
        for section in sections
    ]
    return f"<nav>{' · '.join(links)}</nav>" if len(links) > 2 else ""


def _slug(title: str) -> str:
    return "-".join(re.findall(r"\w+", title.lower()))


def _further(further: Sequence[tuple[str, str]]) -> str:
    if not further:
        return ""
    lines = [
        f"<p>{html.escape(what)}</p>\n<pre>{html.escape(line)}</pre>" for what, line in further
    ]
    return (
        '<details class="further"><summary>What else can be measured here '
        f"({len(further)})</summary>{''.join(lines)}</details>"
    )


def _missing(missing: Sequence[tuple[str, str]]) -> str:
    if not missing:
        return ""
    lines = [
        f"<p>{html.escape(what)} Run:</p>\n<pre>{html.escape(command)}</pre>"
        for what, command in missing
    ]
    return f'<div class="missing">{"".join(lines)}</div>'


def _finding(members: Sequence[Member]) -> str:
    task = next(iter(tasks(members)), None)
    measured = [member for member in members if task in member.estimates]
    if task is None or not measured:
        asked = any(member.own for member in members)
        return "No retrieval was asked for." if asked else "Nothing has been measured yet."
    based = [member for member in measured if member.base is not None] or measured
    ends = [based[0], based[-1]] if len(based) > 1 else based
    said = [
        f"<strong>{html.escape(member.label)}</strong> {_said(member.estimates[task])}"
        for member in ends
    ]
    return f"On {html.escape(task)}, {'; '.join(said)}."


def _said(estimate: Estimate) -> str:
    text = f"<strong>{html.escape(str(estimate))}</strong>"
    if estimate.verdict == NOT_LEARNED:
        return f"is {text}"
    if estimate.verdict == MEASURED:
        return f"finds answers up to {text} tokens back"
    if estimate.verdict.startswith(">"):
        return f"finds answers {text} tokens back, as far as could be asked"
    return f"finds answers only {text} tokens back"


def _table(members: Sequence[Member]) -> str:
    look = looks(members)
    names = tasks(members)
    lead, others = names[:1], [name for name in names[1:] if learned(members, name)]
    groups = [("", 1), *((f"measured: {name}", 4) for name in lead)]
    heads = ["member"]
    if lead:
        heads += ["effective context [95% CI]", "L85", "ceiling", "revival"]
    groups.append(("predicted (tokens)", 3))
    heads += ["theory length", "quarter period", "full period"]
    if others:
        groups.append(("effective context, other tasks", len(others)))
        heads += others
    edges = set()
    for _, span in groups[:-1]:
        edges.add(span + max(edges, default=0))

    lines = []
    for member in members:
        cells = [
            _swatch(look[member.index], control=member.base is None) + html.escape(member.label)
        ]
        for name in lead:
            cells += _measured(member.estimates.get(name))
        bound = member.theory.first_negative
        cells += [
            "none" if bound is None else f"{bound:,}",
            _length(member.theory.quarter_period),
            _length(member.theory.full_period),
        ]
        cells += [html.escape(str(member.estimates.get(name, "not evaluated"))) for name in others]
        lines.append(f'<tr class="member-{member.index}">{_cells(cells, "td", edges)}</tr>')
    top = "".join(f'<th colspan="{span}">{html.escape(text)}</th>' for text, span in groups)
    return (
        '<h2>The numbers</h2>\n<div class="scroll"><table>\n'
        f"<caption>{_table_caption(members)}</caption>\n"
        f'<thead><tr class="groups">{top}</tr>\n<tr>{_cells(heads, "th", edges)}</tr></thead>\n'
        f"<tbody>\n{chr(10).join(lines)}\n</tbody></table></div>"
    )


def _table_caption(members: Sequence[Member]) -> str:
    estimates = [estimate for member in members for estimate in member.estimates.values()]
    measured = ""
    if estimates:
        documents = _plural(min(estimate.num_documents for estimate in estimates), "document")
        seeds = _plural(min(estimate.num_seeds for estimate in estimates), "seed")
        measured = (
            "Effective context: the distance in tokens at which accuracy has fallen half-way from "
            "its ceiling to chance, first crossing from the short side, with its 95% interval "
            f"({documents}, {seeds}); &gt; if not fallen at the longest distance asked; isotonic: "
            "what the same data say with no shape of the fall assumed, where that differs by a "
            "quarter octave. L85: where accuracy is still 0.85 of the way. Ceiling: "
            "accuracy at short distances. Revival: best accuracy beyond the first fall, and where. "
        )
        if unlearned := [name for name in tasks(members)[1:] if not learned(members, name)]:
            measured += f"Learned by no member: {html.escape(', '.join(unlearned))}. "
    return measured + (
        "Theory length: the first distance m at which B<sub>m</sub> = Σ cos(m · inv_freq) is "
        "negative, for the frequencies the member was trained with (none: at no distance below "
        f"{HORIZON:,}). Periods: of the slowest pair that turns."
    )


def _measured(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["not evaluated", "–", "–", "–"]
    revival = f"{estimate.revival:.2f} at {estimate.revival_distance:.0f}"
    return [
        html.escape(str(estimate)),
        html.escape(estimate.l85_text),
        f"{estimate.ceiling:.2f}",
        "–" if math.isnan(estimate.revival) else revival,
    ]


def _length(tokens: float) -> str:
    return "∞" if math.isinf(tokens) else f"{tokens:,.0f}"


def _swatch(look: Look, *, control: bool) -> str:
    color = matplotlib.colors.to_hex(look.color)
    kind = "swatch control" if control else "swatch"
    return f'<span class="{kind}" style="border-color:{color}"></span>'


def _cells(cells: Iterable[str], element: str, edges: Iterable[int] = ()) -> str:
    return "".join(
        f"<{element}{' class=edge' if place in edges else ''}>{cell}</{element}>"
        for place, cell in enumerate(cells)
    )


def _configurations(members: Sequence[Member]) -> str:
    settings = [_flat(member.config) for member in members]
    fields = list(dict.fromkeys(field for setting in settings for field in setting))
    different = [f for f in fields if len({setting.get(f) for setting in settings}) > 1]
    shared = [field for field in fields if field not in different]
    parts = ["<h2>What differs between members</h2>"]
    if different:
        heads = _cells(["member", *map(html.escape, different)], "th")
        rows = [
            f'<tr class="member-{member.index}">'
            + _cells(
                map(html.escape, (member.label, *(setting.get(f, "") for f in different))), "td"
            )
            + "</tr>"
            for member, setting in zip(members, settings, strict=True)
        ]
        parts.append(
            f'<div class="scroll"><table class="text"><thead><tr>{heads}</tr></thead>\n'
            f"<tbody>{chr(10).join(rows)}</tbody></table></div>"
        )
    else:
        parts.append("<p>Nothing: there is one member.</p>")
    rows = [f"<tr>{_cells(map(html.escape, (f, settings[0][f])), 'td')}</tr>" for f in shared]
    parts.append(
        f"<details><summary>Configuration shared by all members ({len(shared)} fields)</summary>"
        f'<table class="text"><tbody>{"".join(rows)}</tbody></table></details>'
    )
    return "\n".join(parts)


def _flat(config: Any, prefix: str = "") -> dict[str, str]:
    """Dotted fields, as overrides spell them; a rotary schedule is one value, its expression."""
    first = config[0] if isinstance(config, tuple) and config else config
    if isinstance(first, Rotary):
        return {prefix: rotary_lib.expression(config)}
    if not dataclasses.is_dataclass(config):
        return {prefix: ",".join(map(str, config)) if isinstance(config, tuple) else str(config)}
    flat = {}
    for field in dataclasses.fields(config):
        name = f"{prefix}.{field.name}" if prefix else field.name
        flat |= _flat(getattr(config, field.name), name)
    return flat
