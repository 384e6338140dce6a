"""The tables of docs/scaling.md: compiled steps, and published results."""

import pytest

from tpu import cost, tables

PUBLISHED = tables.ROWS["published"]
COMPILED = tables.load_compiled()


def test_the_document_shows_every_compiled_row():
    rows = [row for table in tables.TABLES for row in tables.ROWS[table]]
    assert list(COMPILED) == [row["command"] for row in rows]
    for page in tables.DOCS.values():
        text = page.read_text(encoding="utf-8")
        assert tables.draw_tables(text, COMPILED) == text


@pytest.mark.parametrize(
    ("label", "mfu"),
    [  # tokens a second x FLOPs of a token by hand, over the chip's peak
        # 6 x 7,504,924,672 and 3 x 32 x 32 x 256 x 8192
        ("Llama 3.1 8B, 8k, 16 v6e", 7243.378 * (45_029_548_032 + 6_442_450_944) / 918e12),
        ("Llama 3.1 8B, 8k, 256 v6e", 7207.336 * (45_029_548_032 + 6_442_450_944) / 918e12),
        # 132 and 328 TFLOP/s, of which attention was twice 3,221,225,472
        ("Llama 3.1 8B, 8k, 64 v6e", 7247.111 * (45_029_548_032 + 6_442_450_944) / 918e12),
        ("32B, 2k, 256 v5e", 132 / 197 * (1 - 0.01653)),
        ("32B, 2k, 64 v5p", 328 / 459 * (1 - 0.01653)),
        # 6 x 69,503,033,344 and 3 x 80 x 64 x 256 x 8192
        ("Llama 3.1 70B, 8k, 64 v6e", 876.736 * (417_018_200_064 + 32_212_254_720) / 918e12),
        # 6 x 68,714,504,192 and 3 x 80 x 64 x 256 x 4096
        ("Llama 2 70B, 4k, 512 v5p", 692 * (412_287_025_152 + 16_106_127_360) / 459e12),
    ],
)
def test_published_rates_by_our_flops(label, mfu):
    (row,) = (row for row in PUBLISHED if row["label"].startswith(label))
    assert tables.published_mfu(row) == pytest.approx(mfu, rel=1e-3)


def test_libtpu_accepts_all_published_runs():
    assert tables.accepted_rows(COMPILED) == PUBLISHED


@pytest.mark.parametrize("row", PUBLISHED, ids=[row["label"] for row in PUBLISHED])
def test_published_runs_are_below_perfect_overlap(row):
    """Some of them took longer than the sum of all least times."""
    best, worst = tables.mfu_bounds(row["command"], COMPILED[row["command"]])
    assert worst < best and tables.published_mfu(row) < best


def test_factors_and_range_are_those_of_the_published_runs():
    assert tables.fit(PUBLISHED, COMPILED) == pytest.approx(cost.EXPECTED, abs=0.005)
    ratios = tables.leave_one_out(COMPILED).values()
    assert (min(ratios), max(ratios)) == pytest.approx(cost.RANGE, abs=0.005)


def test_leave_one_out_does_not_use_the_row(monkeypatch):
    """A published time of twice the length changes the error of its row by that, and no factor."""
    row, before = PUBLISHED[0], tables.leave_one_out(COMPILED)
    slow = [row | {"tokens_per_second": row["tokens_per_second"] / 2}, *PUBLISHED[1:]]
    monkeypatch.setitem(tables.ROWS, "published", slow)
    after = tables.leave_one_out(COMPILED)
    assert after[row["command"]] == pytest.approx(2 * before[row["command"]])
