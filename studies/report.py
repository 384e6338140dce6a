"""Write the report of a study: figures, numbers and verdicts, from its rows alone."""

import ast
import collections
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evals.estimate.effective_context import Estimate
from reporting import page
from reporting.page import NONE, Commands, Drawing, Item, Table, format_captions
from reporting.paths import check_page
from studies import figures, folder, forecasts, load_cards, recall, rows
from studies.jobs import Job
from studies.results import CardResults
from studies.verdicts import FAILED, HELD, LABELS, Verdict, judge_claim, judge_forecast
from theory.predictions import predict


def write(job: Job, out: Path) -> None:
    """Write the page `out` and its figures, with all seeds that have rows.

    Args:
      job: the study and its cards.
      out: an HTML file.

    Raises:
      ValueError: if a row is damaged.
    """
    check_page(out)
    cards_by_name, all_rows = load_cards(job.study), rows.read_all(job.rows)
    stored_forecasts, recalls = forecasts.read_forecasts(job.study), recall.read(job.study)
    cards = [CardResults(cards_by_name[name], all_rows, stored_forecasts) for name in job.cards]
    missing = [card.card.name for card in cards if not card.rows]
    command = f"python -m studies run {job.study} --only {','.join(missing)}"
    forecast_labels, claim_labels = map(_count_labels, _verdicts(cards))
    page.write(
        out,
        _items(cards, recalls),
        names=[job.study],
        facts=_facts(cards),
        questions=[_question(folder(job.study))],
        summary=f"Forecasts: {forecast_labels}. Claims: {claim_labels}.",
        missing=Commands(lines=[("Cards without any rows:", command)] if missing else []),
        provenance=_provenance(cards),
    )


def _question(study: Path) -> str:
    """Return the first line of the docstring of a study's folder, or the folder's name."""
    path = study / "__init__.py"
    docstring = path.exists() and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else study.name


def _items(cards: Sequence[CardResults], recalls: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the parts of the page; `recalls` has the minimal head's curves by card."""
    captions = format_captions("study_forecasts")
    yield "", "", Drawing("forecasts", figures.draw_forecasts(cards), captions)
    for table in [_card_table(cards), *_rival_tables(cards)]:
        yield "All cards", "", table
    for card in cards:
        title = f"{card.card.name}: {card.card.question}"
        if card.trials:
            captions = format_captions("study_curves", card=card.card.name)
            figure = figures.draw_curves(card, recalls.get(card.card.name, {}))
            yield title, "", Drawing(f"curves {card.card.name}", figure, captions)
        yield title, "", _member_table(card)
        claims = [(None, (claim.text, str(judge_claim(card, claim)))) for claim in card.card.claims]
        if claims:
            yield title, "", Table(heads=("claim", "verdict"), lines=claims, wraps=True)
        if card.card.refuted_if:
            lines = [(None, ("refuted if", card.card.refuted_if))]
            yield title, "", Table(heads=(), lines=lines, wraps=True)


def _member_table(card: CardResults) -> Table:
    """Return a table with a line for each member and measurement."""
    lines = []
    measurements = [measurement.name for measurement in card.card.measurements]
    for member in card.last_rows:
        for measurement in measurements:
            key = card.find_key(member, measurement)
            estimate = card.estimates[key] if key else None
            cells = {"member": f"{member}, {measurement}" if measurements[1:] else member}
            cells["forecast"] = _tokens(card.forecasts.get((member, measurement)), estimate)
            cells["verdict"] = str(judge_forecast(card, member, measurement))
            if estimate:
                cells["L50 [95% CI]"] = str(estimate)
                l50s = (math.inf if seed.beyond else seed.l50 for seed in estimate.seeds)
                cells["each seed"] = " / ".join(_tokens(tokens, estimate) for tokens in l50s)
                cells["worst bin"] = estimate.worst_text
                cells["mean accuracy"] = estimate.mean_text
                cells["ceiling"] = f"{estimate.ceiling:.2f}"
                tokens = sorted({row.tokens for row in card.last_rows[member].values()})
                cells["trained on"] = " / ".join(f"{count / 1e6:.3g}M" for count in tokens)
            lines.append((None, cells))
    return Table.from_cells(lines, caption=format_captions("study_numbers")["caption"])


def _tokens(tokens: float | None, estimate: Estimate | None) -> str:
    """Format a length in tokens; one beyond the longest distance measured as `> longest`."""
    if tokens is None:
        return NONE
    if math.isnan(tokens):
        return "not learned"
    if estimate and tokens >= estimate.longest:
        return f"> {estimate.longest}"
    return "beyond" if math.isinf(tokens) else f"{tokens:.3g}"


def _verdicts(cards: Sequence[CardResults]) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts on all forecasts, and those on all claims."""
    on_forecasts = [judge_forecast(card, *key) for card in cards for key in card.forecasts]
    return on_forecasts, [judge_claim(card, claim) for card in cards for claim in card.card.claims]


def _count_labels(verdicts: Sequence[Verdict]) -> str:
    count = collections.Counter(verdict.label for verdict in verdicts)
    return ", ".join(f"{count[label]} {label}" for label in LABELS if count[label]) or NONE


def _card_table(cards: Sequence[CardResults]) -> Table:
    """Return a table with a line for each card."""
    lines = []
    for card in cards:
        cells = {"card": card.card.name, "question": card.card.question}
        cells["forecasts"], cells["claims"] = map(_count_labels, _verdicts([card]))
        seeds = sorted({seed for by_seed in card.last_rows.values() for seed in by_seed})
        cells["seeds"] = ", ".join(map(str, seeds)) or NONE
        seconds = sum(row.core_seconds for row in card.rows)
        cells["core-hours"] = f"{seconds / 3600:.2f}" if seconds else NONE
        lines.append((None, cells))
    return Table.from_cells(lines, caption=format_captions("study_marks")["caption"], wraps=True)


def _rival_tables(cards: Sequence[CardResults]) -> list[Table]:
    """Return a table with the error of the forecast and of rival lengths; none without verdicts."""
    errors: dict[str, list[float]] = collections.defaultdict(list)
    for card in cards:
        measurement = card.card.measurements[0].name
        for member in card.last_rows:
            key = card.find_key(member, measurement)
            if key and judge_forecast(card, member, measurement).label in (HELD, FAILED):
                for name, tokens in _rivals(card, member).items():
                    errors[name].append(card.octaves_beyond(tokens, key))
    lines = [
        (
            None,
            {
                "length": name,
                "root mean square error": f"{np.sqrt(np.mean(np.square(octaves))):.2f} octaves",
                "maximum error": f"{np.abs(octaves).max():.2f} octaves",
                "mean error": f"{np.mean(octaves):+.2f} octaves",
                "members": str(len(octaves)),
            },
        )
        for name, octaves in errors.items()
    ]
    caption = format_captions("study_predictors")["caption"]
    return [Table.from_cells(lines, caption=caption)] if lines else []


def _rivals(card: CardResults, member: str) -> Mapping[str, float]:
    """Return the forecast and rival lengths of a member, tokens, by name."""
    config = card.card.configs()[member]
    lengths = predict(config.model.position_table(config.data.context_length).inv_freq)
    first = lengths.first_violation
    return {
        "the forecast": card.forecasts[member, card.card.measurements[0].name],
        "quarter period": lengths.quarter_period,
        "theory length (B_m < 0)": math.inf if first is None else first,
    }


def _facts(cards: Sequence[CardResults]) -> list[str]:
    num_runs = sum(len(by_seed) for card in cards for by_seed in card.last_rows.values())
    hours = sum(row.core_seconds for card in cards for row in card.rows) / 3600
    return [f"{len(cards)} cards", f"{num_runs} runs", f"{hours:.1f} core-hours"]


def _provenance(cards: Sequence[CardResults]) -> list[str]:
    records = [row.made_by for card in cards for row in card.rows]
    values = {
        name: sorted({str(record[name]) for record in records if name in record})
        for name in ("commit", "estimator", "jax", "device")
    }
    texts = [f"{name} {', '.join(items)}" for name, items in values.items() if items]
    return [f"Rows: {'; '.join(texts)}."] if texts else []
