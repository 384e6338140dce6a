"""Write the report of a study: figures, numbers and verdicts, from its rows alone."""

import ast
import collections
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evals.estimate.effective_context import Estimate
from reporting import page
from reporting.page import NONE, Commands, Drawing, Item, Table, format_captions
from reporting.paths import check_page
from studies import figures, folder, forecasts, load_cards, recall, rows
from studies.jobs import Job
from studies.recall import Comparison
from studies.results import CardResults
from studies.verdicts import judge_bound, judge_claim


def write(job: Job, out: Path) -> list[str]:
    """Write the page `out` and its figures, with all seeds that have rows; return them as text.

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
    comparisons = recall.compare([card.card for card in cards], all_rows, recalls, stored_forecasts)
    missing = [card.card.name for card in cards if not card.rows]
    command = f"python -m studies run {job.study} --only {','.join(missing)}"
    bound_labels, claim_labels = _count_verdicts(cards)
    models = figures.make_models(cards)
    items = list(_items(cards, comparisons, recalls, models))
    marks = _count([item.mark for item in comparisons if not item.repeats])
    page.write(
        out,
        items,
        looks=[model.look for model in models.values()],
        names=[job.study],
        facts=_facts(cards),
        questions=[_question(folder(job.study))],
        summary=f"Minimal head: {marks}. D_H as a bound: {bound_labels}. Claims: {claim_labels}.",
        missing=Commands(lines=[("Cards without any rows:", command)] if missing else []),
        provenance=_provenance(cards),
    )
    return list(_lines(items))


def _lines(items: Sequence[Item]) -> Iterator[str]:
    """Yield the tables of the page as text."""
    last = ""
    for title, _, item in items:
        if isinstance(item, Table):
            if title != last:
                yield f"\n{title}"
            last = title
            for _, cells in item.lines:
                named = itertools.zip_longest(item.heads, cells, fillvalue="")
                yield "  " + ", ".join(f"{head} {cell}".strip() for head, cell in named)


def _question(study: Path) -> str:
    """Return the first line of the docstring of a study's folder, or the folder's name."""
    path = study / "__init__.py"
    docstring = path.exists() and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else study.name


def _items(
    cards: Sequence[CardResults],
    comparisons: Sequence[Comparison],
    recalls: Mapping[str, Any],
    models: figures.Models,
) -> Iterator[Item]:
    """Yield the parts of the page; `recalls` has the minimal head's curves by card."""
    draw = partial(figures.draw_forecasts, comparisons, models)
    yield "", "", Drawing("forecasts", draw, format_captions("study_forecasts"))
    yield "All cards", "", _card_table(cards)
    if summary := [(None, cells) for cells in recall.summaries(comparisons)]:
        caption = format_captions("study_errors")["caption"]
        yield "Errors of the theories", "", Table.from_cells(summary, caption=caption)
    for card in cards:
        title = f"{card.card.name}: {card.card.question}"
        if card.trials:
            captions = format_captions("study_curves", card=card.card.name)
            draw = partial(figures.draw_curves, card, recalls.get(card.card.name, {}), models)
            yield title, "", Drawing(f"curves {card.card.name}", draw, captions)
        yield title, "", _member_table(card, models)
        compared = [item for item in comparisons if item.card is card.card]
        if table := _recall_table(compared, models):
            yield title, "", table
        if table := _frequency_table(card, recalls.get(card.card.name, {})):
            yield title, "", table
        claims = [(None, (claim.text, str(judge_claim(card, claim)))) for claim in card.card.claims]
        if claims:
            yield title, "", Table(heads=("claim", "verdict"), lines=claims, wraps=True)
        if card.card.refuted_if:
            lines = [(None, ("refuted if", card.card.refuted_if))]
            yield title, "", Table(heads=(), lines=lines, wraps=True)


def _member_table(card: CardResults, models: figures.Models) -> Table:
    """Return a table with a line for each member and measurement."""
    lines = []
    measurements = [measurement.name for measurement in card.card.measurements]
    for member in card.last_rows:
        for measurement in measurements:
            key = card.find_key(member, measurement)
            estimate = card.estimates[key] if key else None
            cells = {"member": f"{member}, {measurement}" if measurements[1:] else member}
            cells["D_H"] = _tokens(card.forecasts.get((member, measurement)), estimate)
            cells["as a bound"] = str(judge_bound(card, member, measurement))
            if estimate:
                cells["L50 [95% CI]"] = str(estimate)
                l50s = (math.inf if seed.beyond else seed.l50 for seed in estimate.seeds)
                cells["each seed"] = " / ".join(_tokens(tokens, estimate) for tokens in l50s)
                cells["budgets"] = card.budgets(member)
                cells["worst bin"] = estimate.worst_text
                cells["mean accuracy"] = estimate.mean_text
                cells["ceiling"] = f"{estimate.ceiling:.2f}"
                cells["trained on, growth"] = card.trained_on(member)
            lines.append((models[card.card.name, member].index, cells))
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


def _recall_table(comparisons: Sequence[Comparison], models: figures.Models) -> Table | None:
    """Return a table of the minimal head's forecasts of a card's members; None without rows."""
    lines = []
    for item in comparisons:
        measured, mark = item.measured, f"{item.mark}{f', as {item.repeats}' * bool(item.repeats)}"
        cells = {"member": item.member, "after": f"{item.answers / 1000:,.0f}k answers"}
        cells |= {"minimal head": recall.describe(item.record), "L50 [95% CI]": str(measured)}
        cells |= {"mean accuracy": measured.mean_text, "worst": f"{measured.worst.accuracy:.2f}"}
        cells |= {"error": item.error_text, "mark": mark}
        lines.append((models[item.card.name, item.member].index, cells))
    caption = format_captions("study_recall")["caption"]
    return Table.from_cells(lines, caption=caption) if lines else None


def _frequency_table(card: CardResults, recalls: Mapping[str, Any]) -> Table | None:
    """Return a table of the learned frequencies of a card's members; None if none learned any."""
    lines = []
    for member, by_seed in card.last_rows.items():
        for seed, row in sorted(by_seed.items()):
            record = recalls.get(member, {}).get(str(row.tokens), {})
            at_start_LKR = row.config.model.position_table(2).inv_freq
            heads = [(f"seed {seed}", head) for layer in row.inv_freq for head in layer]
            simulated = [head for layer in record.get("inv_freq", ()) for head in layer]
            if heads and seed == min(by_seed):
                distinct = np.unique(at_start_LKR.reshape(-1, at_start_LKR.shape[-1]), axis=0)
                heads = [*(("start", head) for head in distinct), *heads]
                heads += [("forecast", head) for head in simulated]
            for source, head in heads:
                ascending = np.sort(head)
                slow = ascending[:8]
                cells = {"member": member, "": source, "slowest eight": f"{np.median(slow):.3f}"}
                cells["ratio"] = f"{slow[-1] / slow[0]:.2f}" if slow[0] > 0 else NONE
                multiples = ascending[ascending < 4.5 * np.median(slow)] / np.median(slow)
                is_near = np.abs(multiples / np.maximum(np.round(multiples), 1) - 1) < 0.03
                cells["near multiples"] = f"{is_near.sum()} of {len(multiples)}"
                cells["all"] = " ".join(f"{value:.3f}" for value in ascending)
                lines.append((None, cells))
    caption = format_captions("study_frequencies")["caption"]
    return Table.from_cells(lines, caption=caption, wraps=True) if lines else None


def _count_verdicts(cards: Sequence[CardResults]) -> tuple[str, str]:
    """Count the marks of all bounds, and the verdicts on all claims."""
    on_bounds = [judge_bound(card, *key).label for card in cards for key in card.forecasts]
    claims = [(card, claim) for card in cards for claim in card.card.claims]
    return _count(on_bounds), _count([judge_claim(*claim).label for claim in claims])


def _count(labels: Sequence[str]) -> str:
    counts = collections.Counter(labels).most_common()
    return ", ".join(f"{number} {label}" for label, number in counts) or NONE


def _card_table(cards: Sequence[CardResults]) -> Table:
    """Return a table with a line for each card."""
    lines = []
    for card in cards:
        cells = {"card": card.card.name, "question": card.card.question}
        cells["bounds"], cells["claims"] = _count_verdicts([card])
        seeds = sorted({seed for by_seed in card.last_rows.values() for seed in by_seed})
        cells["seeds"] = ", ".join(map(str, seeds)) or NONE
        seconds = sum(row.core_seconds for row in card.rows)
        cells["core-hours"] = f"{seconds / 3600:.2f}" if seconds else NONE
        lines.append((None, cells))
    return Table.from_cells(lines, caption=format_captions("study_marks")["caption"], wraps=True)


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
