import pytest
from matplotlib.patches import Rectangle

from ropewalk.reporting import heat_maps
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read, row


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """Needles of base 10 at 128 and 256, none of base 30."""
    folder = make_sweep(tmp_path_factory.mktemp("sweep"), ["base=10", "base=30"])
    for base in (10, 30):
        config = experiment(f"rope(base={base})")
        rows = answers(config, 20, documents=4)
        if base == 10:
            # Depths of 1 - distance / length: 0.9 at both lengths, 0.1 at the longer one.
            rows += [row(config, "needle(depths=5)", distance=13, document=i) for i in range(4)]
            for document in range(4):
                for distance, right in ((26, False), (230, document < 1)):
                    answer = {"exact_match": right, "first_token_correct": right}
                    place = {"length": 256, "document": document, "distance": distance}
                    rows.append(row(config, "needle(depths=5)", **place, **answer))
        make_run(folder / f"base={base}", config, rows)
    return read(folder)


def tooltips(figure) -> list[str]:
    patches = (patch for ax in figure.axes for patch in ax.patches if isinstance(patch, Rectangle))
    return [gid.partition("title:")[2] for patch in patches if (gid := patch.get_gid())]


def test_needles_by_length_and_depth(members):
    """Depths are rounded to a grid of 0, 1/4, ... 1: 0.9 is 1, 0.1 is 0."""
    assert heat_maps.depth_tasks(members) == ["needle(depths=5)"]
    results = tooltips(heat_maps.draw_lengths(members, "needle(depths=5)"))
    assert "base=10 at 128, depth 100%: 1.00 of 4" in results
    assert "base=10 at 256, depth 100%: 0.00 of 4" in results
    assert "base=10 at 256, depth 0%: 0.25 of 4" in results
    assert sum(tooltip.endswith("not tested") for tooltip in results) == 10 - 3
    assert not any(tooltip.startswith("base=30") for tooltip in results)
