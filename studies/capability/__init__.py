"""The study of what limits effective context: heads, frequencies, or the code of keys?

Each file defines a card. Two forecasts of each model, without fitted parameters, are stored before
its first run (`forecasts.py`): D_H's bound, and the recall that the minimal head learns (the rows
of C1 to C11 are older than it). The claims of a card go beyond these numbers.
"""

from collections.abc import Iterator, Sequence

from ropewalk.reporting.page import Item
from ropewalk.studies.capability.recipe import configs as configs
from ropewalk.studies.card import Card
from ropewalk.studies.rows import Row


def forecast(cards: Sequence[Card]) -> Iterator[str]:
    """Compute and store the missing forecasts of cards; yield a line for each."""
    from ropewalk.studies.capability import forecasts  # late: it needs JAX

    return forecasts.forecast(cards)


def check_forecasts(cards: Sequence[Card]) -> None:
    """Raise ValueError if a forecast that `run` needs is missing."""
    from ropewalk.studies.capability import forecasts

    forecasts.check_forecasts(cards)


def sections(cards: Sequence[Card], rows: Sequence[Row]) -> Iterator[Item]:
    """Yield figures and tables of the report."""
    from ropewalk.studies.capability.parts import sections as make  # late: it needs matplotlib

    return make(cards, rows)
