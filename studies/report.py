"""A study's report: every figure drawn and every forecast and claim marked, from its rows alone."""

import ast
import collections
import importlib.metadata
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

from evals.estimate.effective_context import Estimate
from reporting.looks import STYLE
from reporting.page import NONE, Commands, Section, Table, render, words
from reporting.pictures import Drawing, save
from studies import figures, folder, forecasts, load_cards, rows
from studies.marks import FAILED, HELD, NOT_RUN, WORDS, CardResults, Mark, octaves_between
from theory.predictions import predict


def write(study: str, out: Path, only: Sequence[str] = ()) -> None:
    """Writes the page `out`, its figures beside it.

    Args:
      study: its name.
      out: an HTML file.
      only: names of cards; none: all.

    Raises:
      ValueError: if there is no such study, or a row is damaged.
    """
    where = folder(study)
    found, forecast = rows.read_all(where / "rows"), forecasts.read(study)
    cards = [
        CardResults(card, found, forecast.get(name, {}))
        for name, card in load_cards(study).items()
        if not only or name in only
    ]
    matplotlib.use("Agg")  # a page needs no display
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        said = words("study_forecasts")
        lead = save(Drawing("forecasts", figures.forecasts(cards), said), out, ())
        sections = [_section(card, out) for card in cards]
    missing = [
        ("Nothing of these has been run.", f"python -m studies run {study} --only {name}")
        for name in [",".join(c.card.name for c in cards if not any(c.last.values()))]
        if name
    ]
    docstring = ast.get_docstring(ast.parse((where / "__init__.py").read_text(encoding="utf-8")))
    page = render(
        names=[study],
        facts=_facts(cards),
        questions=[(docstring or study).splitlines()[0]],
        opening=_opening(cards),
        findings=[],
        lead=lead,
        missing=Commands(lines=missing),
        sections=[
            Section(title="All cards", parts=[_overview(cards), *_predictors(cards)]),
            *sections,
        ],
        provenance=_provenance(cards),
        looks=[],
    )
    out.write_text(page, encoding="utf-8")


def _section(card: CardResults, out: Path) -> Section:
    """A card: what it asks, its curves, its numbers and its claims."""
    parts = []
    if card.trials:
        said = words("study_curves", card=card.card.name)
        name = f"curves {card.card.name}"
        parts.append(save(Drawing(name, figures.curves(card), said), out, ()))
    parts.append(_numbers(card))
    claims = [(None, (claim.text, str(card.claim_mark(claim)))) for claim in card.card.claims]
    if claims:
        refuted = f"Refuted if {card.card.refuted_if}." if card.card.refuted_if else ""
        heads = ("claim", "mark")
        parts.append(Table(heads=heads, lines=claims, caption=refuted, wraps=True))
    return Section(title=f"{card.card.name}: {card.card.question}", parts=parts)


def _numbers(card: CardResults) -> Table:
    """A line a member and measurement."""
    lines = []
    for member in card.last:
        mine = {key: found for key, found in card.estimates.items() if key[0] == member}
        first = card.first(member)
        if not mine:
            cells = {"member": member, "forecast": _tokens(card.forecasts.get(member), first)}
            lines.append((None, cells | {"forecast is": NOT_RUN}))
        for (_, measurement, _), found in mine.items():
            lone = found is first
            cells = {"member": member if lone else f"{member}, {measurement}"}
            cells["forecast"] = _tokens(card.forecasts.get(member), found) if lone else NONE
            cells["L50 [95% CI]"] = str(found)
            each = (math.inf if seed.beyond else seed.l50 for seed in found.seeds)
            cells["each seed"] = " / ".join(_tokens(tokens, found) for tokens in each)
            cells["worst bin"] = found.worst_text
            cells["mean accuracy"] = found.mean_text
            cells["ceiling"] = f"{found.ceiling:.2f}"
            tokens = {row.tokens for row in card.last[member].values()}
            cells["trained on"] = " / ".join(f"{count / 1e6:.3g}M" for count in sorted(tokens))
            cells["forecast is"] = str(card.forecast_mark(member)) if lone else NONE
            lines.append((None, cells))
    return Table.of(lines, caption=words("study_numbers")["caption"])


def _tokens(tokens: float | None, estimate: Estimate | None) -> str:
    """A length; beyond the longest distance asked as `> longest`."""
    if tokens is None:
        return NONE
    if math.isnan(tokens):
        return "not learned"
    if estimate and tokens >= estimate.longest:
        return f"> {estimate.longest}"
    return "beyond" if math.isinf(tokens) else f"{tokens:.3g}"


def _marks(cards: Sequence[CardResults]) -> tuple[list[Mark], list[Mark]]:
    """Of all forecasts, and of all claims."""
    of_forecasts = [card.forecast_mark(member) for card in cards for member in card.last]
    return of_forecasts, [card.claim_mark(claim) for card in cards for claim in card.card.claims]


def _opening(cards: Sequence[CardResults]) -> str:
    sentences = []
    for name, marks in zip(("forecasts", "claims"), _marks(cards), strict=True):
        count = collections.Counter(mark.word for mark in marks)
        said = ", ".join(f"{count[word]} {word}" for word in WORDS if count[word])
        sentences.append(f"Of {len(marks)} {name}: {said}.")
    return " ".join(sentences)


def _overview(cards: Sequence[CardResults]) -> Table:
    """A line a card."""
    lines = []
    for card in cards:
        cells = {"card": card.card.name, "asks": card.card.question}
        for name, marks in zip(("forecasts", "claims"), _marks([card]), strict=True):
            count = collections.Counter(mark.word for mark in marks)
            cells[name] = ", ".join(f"{count[word]} {word}" for word in WORDS if count[word])
        seeds = sorted({seed for runs in card.last.values() for seed in runs})
        cells["seeds"] = ", ".join(map(str, seeds)) or NONE
        seconds = sum(row.core_seconds for row in card.rows)
        cells["core-hours"] = f"{seconds / 3600:.2f}" if seconds else NONE
        lines.append((None, cells))
    return Table.of(lines, caption=words("study_marks")["caption"], wraps=True)


def _predictors(cards: Sequence[CardResults]) -> list[Table]:
    """How far off the forecast is, and what else a vector of frequencies says; none: no numbers."""
    off: dict[str, list[float]] = collections.defaultdict(list)
    for card in cards:
        for member in card.last:
            if card.forecast_mark(member).word not in (HELD, FAILED):
                continue
            estimate = card.first(member)
            assert estimate is not None  # it is marked
            for name, tokens in _said(card, member).items():
                off[name].append(octaves_between(tokens, estimate))
    lines = [
        (
            None,
            {
                "says where L50 is": name,
                "off by, root mean square": f"{np.sqrt(np.mean(np.square(octaves))):.2f} octaves",
                "at most": f"{np.abs(octaves).max():.2f} octaves",
                "on average": f"{np.mean(octaves):+.2f} octaves",
                "members": str(len(octaves)),
            },
        )
        for name, octaves in off.items()
    ]
    return [Table.of(lines, caption=words("study_predictors")["caption"])] if lines else []


def _said(card: CardResults, member: str) -> Mapping[str, float]:
    """Lengths in tokens by the name of what says them."""
    config = card.card.configs()[member]
    said = predict(config.model.rotary_table(config.data.context_length).inv_freq)
    first = said.first_violation
    return {
        "the forecast": card.forecasts[member],
        "quarter period": said.quarter_period,
        "theory length (B_m < 0)": math.inf if first is None else first,
    }


def _facts(cards: Sequence[CardResults]) -> list[str]:
    runs = sum(len(by_seed) for card in cards for by_seed in card.last.values())
    hours = sum(row.core_seconds for card in cards for row in card.rows) / 3600
    return [f"{len(cards)} cards", f"{runs} runs", f"{hours:.1f} core-hours"]


def _provenance(cards: Sequence[CardResults]) -> list[str]:
    made = [row.made_by for card in cards for row in card.rows]
    said = {
        name: sorted({str(each[name]) for each in made if name in each})
        for name in ("commit", "estimator", "jax", "device")
    }
    rows_of = [f"{name} {', '.join(values)}" for name, values in said.items() if values]
    made_by = f"Page made with JAX {importlib.metadata.version('jax')}."
    return [f"Rows of {'; '.join(rows_of)}."] * bool(rows_of) + [made_by]
