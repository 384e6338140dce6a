import pytest
from matplotlib.patches import Rectangle

from reporting import heat_maps
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read, row

YARN = "dynamic_yarn(base={},original_context_length=128)"


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """kv at 128 and 256 and nats at 128 under two variants; needles of base 10 only."""
    folder = make_sweep(tmp_path_factory.mktemp("sweep"), ["base=10", "base=30"])
    for base, trained, other in ((10, 20, 40), (30, 60, 1000)):
        config = experiment(f"rope(base={base})")
        rows = answers(config, trained, documents=32) + answers(
            config, trained, length=256, documents=32
        )
        rows += answers(config, other, length=256, documents=32, variant=YARN.format(base))
        for nll, variant in ((2.0, f"rope(base={base})"), (2.5, YARN.format(base))):
            rows += [row(config, "perplexity", rotary=variant, nll=nll + base / 100)]
        if base == 10:
            # Depths of 1 - distance / length: 0.9 at both lengths, 0.1 at the longer one.
            rows += [row(config, "needle(depths=5)", distance=13, document=i) for i in range(4)]
            for document in range(4):
                common = {"length": 256, "document": document}
                rows += [
                    row(
                        config,
                        "needle(depths=5)",
                        distance=26,
                        exact_match=False,
                        first_token_correct=False,
                        **common,
                    ),
                    row(
                        config,
                        "needle(depths=5)",
                        distance=230,
                        exact_match=document < 1,
                        first_token_correct=document < 1,
                        **common,
                    ),
                ]
        make_run(folder / f"base={base}", config, rows)
    return read(folder)


def tooltips(figure) -> list[str]:
    patches = (patch for ax in figure.axes for patch in ax.patches if isinstance(patch, Rectangle))
    return [gid.partition("title:")[2] for patch in patches if (gid := patch.get_gid())]


def test_cells_of_the_matrix(members):
    results = heat_maps.cells(members, "kv", 256)
    assert results.keys() == {(i, s) for i in (0, 1) for s in ("trained", "dynamic_yarn")}
    l50 = {
        key: float(heat_maps.cell_text(cell).split()[0])
        for key, cell in results.items()
        if key != (1, "dynamic_yarn")
    }
    assert l50[0, "trained"] == pytest.approx(19.5, abs=0.6)
    assert l50[0, "dynamic_yarn"] == pytest.approx(39.5, abs=0.8)
    assert l50[1, "trained"] == pytest.approx(59.5, abs=1)
    assert heat_maps.cell_text(results[1, "dynamic_yarn"]) == "> 255"


def test_needles_by_length_and_depth(members):
    """Depths are rounded to a grid of 0, 1/4, ... 1: 0.9 is 1, 0.1 is 0."""
    assert heat_maps.depth_tasks(members) == ["needle(depths=5)"]
    results = tooltips(heat_maps.draw_lengths(members, "needle(depths=5)"))
    assert "base=10 at 128, depth 100%: 1.00 of 4" in results
    assert "base=10 at 256, depth 100%: 0.00 of 4" in results
    assert "base=10 at 256, depth 0%: 0.25 of 4" in results
    assert sum(tooltip.endswith("not tested") for tooltip in results) == 10 - 3
    assert not any(tooltip.startswith("base=30") for tooltip in results)
