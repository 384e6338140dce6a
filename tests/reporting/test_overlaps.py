"""No text of a figure overlaps other text."""

import re

import matplotlib
import numpy as np
import pytest

from ropewalk.model import rotary
from ropewalk.probes import all_probes
from ropewalk.reporting import page
from ropewalk.reporting.writing import write
from ropewalk.theory import show
from ropewalk.utils.figures import STYLE, add_legend, handle, new_figure
from tests.reporting.helpers import answers, experiment, make_run, row
from tests.reporting.overlaps import overlaps

# The shortest and the longest labels of members that docs has.
LABELS = "base=10", "base=10000,num_heads=4,window=32", "base=30,num_heads=4", "rotary=nope"


@pytest.fixture(autouse=True)
def style():
    with matplotlib.rc_context(STYLE):
        yield


def make_probe(cls, seed: int):
    """Return a probe with random arrays of the names and shapes that its docstring lists."""
    sizes = dict(zip("3LNRMXGWCDQKHP", (3, 1, 4, 8, 127, 6, 6, 2, 4, 4, 99, 8, 16, 2), strict=True))
    arrays, random = {}, np.random.default_rng(seed)
    for name in re.findall(r"\b[a-z][a-z_0-9]*_[3A-Z]+\b", cls.__doc__):
        shape = [sizes[letter] for letter in name.rpartition("_")[2]]
        is_sorted = len(shape) == 1 and "right" not in name
        arrays[name] = np.geomspace(1, 125, shape[0]) if is_sorted else random.random(shape)
    return cls(**arrays, trained_length=128, longest=125)


@pytest.mark.parametrize("cls", all_probes().values(), ids=list(all_probes()))
def test_probes(cls):
    results = {label: [make_probe(cls, seed)] for seed, label in enumerate(LABELS)}
    assert overlaps(cls.plot(results)) == []


def test_a_legend_of_forty_members_is_not_cut():
    figure = new_figure(9.2, 4.3)
    figure.subplots()
    add_legend(figure, [handle(f"base={number},\nnum_heads=4") for number in range(40)])
    assert overlaps(figure) == []


def test_theory():
    names = "rope(base=1e4,rotary_fraction=0.75)", "rope(base=10)"
    curves = {name: rotary.parse(name).inv_freq(64) for name in names}
    heads = np.stack([inv_freq[::8] for inv_freq in curves.values()])
    stretched = "original_context_length=2048,target_context_length=16384"
    texts = "rope(base=1e4)", "p_rope(base=1e4,rotary_fraction=0.75)", "method1", "method2"
    texts += f"scaled_base(base=1e4,{stretched})", "position_interpolation(base=1e4,factor=8)"
    for figure in (
        show.draw_curves(curves, 2048),
        show.draw_curves(curves, 2048, "attention"),
        show.draw_capabilities(heads, 64, 31),
        show.draw_wavelengths([show.make_report(rotary.parse(x), show.Head()) for x in texts]),
    ):
        assert overlaps(figure) == []


def page_of_heads(folder):
    """Make runs of equal bases with several heads, controls with long names, a distant base."""
    for base in ("rope(base=10)", "rope(base=30)", "rope(base=10000)", "nope"):
        for heads in (1, 4):
            model = dict(num_heads=heads, num_kv_heads=heads)
            model |= dict(window=32) if (base, heads) == ("rope(base=10000)", 4) else {}
            config = experiment(base, model=model)
            rows = [row(config, "perplexity"), *answers(config, 20 * heads, documents=16)]
            rows += answers(config, 20 * heads, length=256, documents=16)
            make_run(folder / f"{base}{heads}", config, rows)


def page_of_tasks(folder):
    """Make runs with rows of every task that has a figure."""
    others = [
        f"dynamic_{name}(base=10,original_context_length=128)" for name in ("yarn", "ntk_aware")
    ]
    for base in (10, 30, 100, 10000):
        config = experiment(f"rope(base={base})")
        rows = []
        for length in (128, 256):
            rows += answers(config, base, length=length, documents=16)
            for depth in range(5):
                distance = 1 + (length - 2) * depth // 4
                rows.append(row(config, "needle(depths=5)", length=length, distance=distance))
            for nats, variant in enumerate((f"rope(base={base})", *others)):
                numbers = dict(rotary=variant, length=length, nll=2 + nats / 9)
                rows += [
                    row(config, "perplexity", document=n, distance=4, **numbers) for n in range(3)
                ]
                rows += [row(config, "kv(keys=64)", distance=d, **numbers) for d in range(1, 128)]
        for candidate in (10, 500, 1e4, 1e6):
            numbers = dict(rotary=f"rope(base={candidate:g})", base=candidate, nll=candidate**0.1)
            rows += [row(config, "step1", document=n, **numbers) for n in range(2)]
        for distance in (8, 16, 32, 64):
            numbers = dict(distance=distance, nll=4 / distance)
            rows += [row(config, "fixed_target", document=n, **numbers) for n in range(2)]
            for text, nats in (("natural", 0.0), ("control", 1.0)):
                task = f"lagcopy(text={text})"
                rows.append(row(config, task, distance=distance, document=distance, nll=nats))
        make_run(folder / f"base={base}", config, rows)


def page_of_trained_lengths(folder):
    """Make runs of several bases and numbers of heads at three trained lengths."""
    for length in (32, 64, 128):
        for base, heads in (("rope(base=10)", 1), ("rope(base=10)", 4), ("nope", 4)):
            model = dict(num_heads=heads, num_kv_heads=heads)
            config = experiment(base, length=length, model=model)
            rows = answers(config, 20 * heads, documents=16)
            make_run(folder / f"{base}{heads}-{length}", config, rows)


PAGES = {
    page_of_heads: "loss length_kv superficial",
    page_of_tasks: "heat_map_needle_depths_5 step1 copy_gain context_gain perplexity_by_position",
    page_of_trained_lengths: "trained_length effective_context accuracy_by_distance",
}


@pytest.mark.long
@pytest.mark.parametrize("make_runs", PAGES)
def test_figures_of_a_page_have_no_overlapping_text(make_runs, tmp_path, monkeypatch):
    make_runs(tmp_path)
    drawn = []
    monkeypatch.setattr(page, "_as_svg", lambda figure: drawn.append(figure) or "<svg></svg>")
    monkeypatch.setitem(STYLE, "savefig.dpi", 40)
    write(sorted(tmp_path.iterdir()), tmp_path / "page" / "report.html", "python report.py")
    names = {path.stem for path in (tmp_path / "page").glob("*.png")}
    assert names >= set(PAGES[make_runs].split()) and len(drawn) == len(names)
    assert [pairs for figure in drawn if (pairs := overlaps(figure))] == []
