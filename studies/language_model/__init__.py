"""What does a RoPE base cost a small language model, and at which distances?

docs/language_model.md has the claims and forecasts, which were committed before any row.
"""

from collections.abc import Iterator, Sequence

from ropewalk.studies.card import Card


def sections(cards: Sequence[Card], rows: Sequence) -> Iterator:
    """Yield the figures of the report."""
    from ropewalk.studies.language_model import figures  # late: it needs matplotlib

    return figures.sections(cards, rows)
