"""A study's report: every figure drawn and every forecast and claim marked, from its rows alone."""

import ast
import collections
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

from evals.estimate.effective_context import Estimate
from reporting.looks import STYLE
from reporting.page import NONE, Commands, Section, Table, format_captions, render
from reporting.pictures import Drawing, save
from studies import figures, folder, forecasts, load_cards, rows
from studies.marks import FAILED, HELD, WORDS, CardResults, Mark
from studies.queue import Job
from theory.predictions import predict


def write(job: Job, out: Path) -> None:
    """Writes the page `out`, its figures beside it.

    Args:
      job: whose study and cards are reported, of all seeds that there are.
      out: an HTML file.

    Raises:
      ValueError: if a row is damaged.
    """
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; write --out {out / 'report.html'}")
    known, found, forecast = (
        load_cards(job.study),
        rows.read_all(job.rows),
        forecasts.read(job.study),
    )
    cards = [CardResults(known[name], found, forecast) for name in job.cards]
    matplotlib.use("Agg")  # a page needs no display
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        said = format_captions("study_forecasts")
        lead = save(Drawing("forecasts", figures.forecasts(cards), said), out, ())
        sections = [_section(card, out) for card in cards]
    missing = [card.card.name for card in cards if not card.rows]
    command = f"python -m studies run {job.study} --only {','.join(missing)}"
    lines = [("Cards of which nothing has been run:", command)] if missing else []
    page = render(
        names=[job.study],
        facts=_facts(cards),
        questions=[_question(folder(job.study))],
        opening=_opening(cards),
        findings=[],
        lead=lead,
        missing=Commands(lines=lines),
        sections=[
            Section(title="All cards", parts=[_overview(cards), *_predictors(cards)]),
            *sections,
        ],
        provenance=_provenance(cards),
        looks=[],
    )
    out.write_text(page, encoding="utf-8")


def _question(where: Path) -> str:
    """What a study asks: the first line of its folder's docstring, or its name."""
    path = where / "__init__.py"
    docstring = path.exists() and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else where.name


def _section(card: CardResults, out: Path) -> Section:
    """A card: what it asks, its curves, its numbers and its claims."""
    parts = []
    if card.trials:
        said = format_captions("study_curves", card=card.card.name)
        name = f"curves {card.card.name}"
        parts.append(save(Drawing(name, figures.curves(card), said), out, ()))
    parts.append(_numbers(card))
    claims = [(None, (claim.text, str(card.claim_mark(claim)))) for claim in card.card.claims]
    if claims:
        parts.append(Table(heads=("claim", "mark"), lines=claims, wraps=True))
    said = {"found": card.card.source, "refuted if": card.card.refuted_if}
    if any(said.values()):
        lines = [(None, pair) for pair in said.items() if pair[1]]
        parts.append(Table(heads=(), lines=lines, wraps=True))
    return Section(title=f"{card.card.name}: {card.card.question}", parts=parts)


def _numbers(card: CardResults) -> Table:
    """A line a member and measurement."""
    lines = []
    several = len(card.card.measurements) > 1
    for member in card.last:
        for measurement in (each.name for each in card.card.measurements):
            key = card.key(member, measurement)
            found = card.estimates[key] if key else None
            cells = {"member": f"{member}, {measurement}" if several else member}
            cells["forecast"] = _tokens(card.forecasts.get((member, measurement)), found)
            cells["it is"] = str(card.forecast_mark(member, measurement))
            if found:
                cells["L50 [95% CI]"] = str(found)
                each = (math.inf if seed.beyond else seed.l50 for seed in found.seeds)
                cells["each seed"] = " / ".join(_tokens(tokens, found) for tokens in each)
                cells["worst bin"] = found.worst_text
                cells["mean accuracy"] = found.mean_text
                cells["ceiling"] = f"{found.ceiling:.2f}"
                tokens = sorted({row.tokens for row in card.last[member].values()})
                cells["trained on"] = " / ".join(f"{count / 1e6:.3g}M" for count in tokens)
            lines.append((None, cells))
    return Table.from_cells(lines, caption=format_captions("study_numbers")["caption"])


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
    of_forecasts = [card.forecast_mark(*of) for card in cards for of in card.forecasts]
    return of_forecasts, [card.claim_mark(claim) for card in cards for claim in card.card.claims]


def _opening(cards: Sequence[CardResults]) -> str:
    of_forecasts, of_claims = map(_counted, _marks(cards))
    return f"Forecasts: {of_forecasts}. Claims: {of_claims}."


def _counted(marks: Sequence[Mark]) -> str:
    count = collections.Counter(mark.word for mark in marks)
    return ", ".join(f"{count[word]} {word}" for word in WORDS if count[word]) or NONE


def _overview(cards: Sequence[CardResults]) -> Table:
    """A line a card."""
    lines = []
    for card in cards:
        cells = {"card": card.card.name, "asks": card.card.question}
        cells["forecasts"], cells["claims"] = map(_counted, _marks([card]))
        seeds = sorted({seed for runs in card.last.values() for seed in runs})
        cells["seeds"] = ", ".join(map(str, seeds)) or NONE
        seconds = sum(row.core_seconds for row in card.rows)
        cells["core-hours"] = f"{seconds / 3600:.2f}" if seconds else NONE
        lines.append((None, cells))
    return Table.from_cells(lines, caption=format_captions("study_marks")["caption"], wraps=True)


def _predictors(cards: Sequence[CardResults]) -> list[Table]:
    """How far off the forecast is, and what else a vector of frequencies says; none: no numbers."""
    off: dict[str, list[float]] = collections.defaultdict(list)
    for card in cards:
        whole = card.card.measurements[0].name
        for member in card.last:
            if card.forecast_mark(member, whole).word not in (HELD, FAILED):
                continue
            key = card.key(member, whole)
            assert key is not None  # it is marked
            for name, tokens in _said(card, member).items():
                off[name].append(card.octaves_between(tokens, key))
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
    return (
        [Table.from_cells(lines, caption=format_captions("study_predictors")["caption"])]
        if lines
        else []
    )


def _said(card: CardResults, member: str) -> Mapping[str, float]:
    """Lengths in tokens by the name of what says them."""
    config = card.card.configs()[member]
    said = predict(config.model.rotary_table(config.data.context_length).inv_freq)
    first = said.first_violation
    return {
        "the forecast": card.forecast(member),
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
    of = [f"{name} {', '.join(values)}" for name, values in said.items() if values]
    return [f"Rows: {'; '.join(of)}."] if of else []
