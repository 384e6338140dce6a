"""Overlaps of text in figures, and text outside of them, measured on the drawn figure."""

import itertools

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_TOLERANCE = 1.0  # pixels at 100 dpi


def text_boxes(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return the text and the box in pixels of every visible text of a figure."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    hidden = hidden_tick_labels(figure)
    return [
        (text.get_text(), text.get_window_extent(renderer))
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and text not in hidden
    ]


def hidden_tick_labels(figure: Figure) -> set[Text]:
    """Return the labels of ticks that are not drawn: left over, or outside of the limits."""
    hidden = set()
    for axis in [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        drawn = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        for tick in (*axis.majorTicks, *axis.minorTicks):
            if tick not in drawn or not low <= tick.get_loc() <= high:
                hidden |= {tick.label1, tick.label2}
    return hidden


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Return the pairs of texts whose boxes overlap.

    A text outside is paired with "page", and TeX that is drawn as it stands with "markup".
    """
    boxes, page = text_boxes(figure), figure.bbox.padded(_TOLERANCE)
    corners = [(text, corner) for text, box in boxes for corner in (box.min, box.max)]
    pairs = [(text, "page") for text, corner in corners if not page.contains(*corner)]
    for bar in (ax for ax in figure.axes if ax.get_label() == "<colorbar>"):
        others = [text for ax in figure.axes if ax is not bar for text in ax.findobj(Text)]
        for text in {*others} - hidden_tick_labels(figure):
            box = text.get_window_extent()
            if text.get_text().strip() and box.width and box.overlaps(bar.bbox):
                pairs.append((text.get_text(), "color scale"))
    if not matplotlib.rcParams["text.parse_math"]:
        pairs += [(text, "markup") for text, _ in boxes if r"\math" in text]
    for (one, box), (two, other) in itertools.combinations(boxes, 2):
        width = min(box.x1, other.x1) - max(box.x0, other.x0)
        height = min(box.y1, other.y1) - max(box.y0, other.y0)
        if width > _TOLERANCE and height > _TOLERANCE:
            pairs.append((one, two))
    return pairs
