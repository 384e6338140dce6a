from evals import rows as rows_lib
from reporting import tables
from tests.reporting.helpers import experiment, make_run, row


def test_members_are_compared_with_the_best_on_the_same_text(tmp_path):
    """Nats of 1 and 3, and .1 and .2 more: .15 ± 1.96 x .05; other text is not compared."""
    results = []
    for base, more, size in ((10, (0.1, 0.2), 7), (30, (0, 0), 7), (100, (0.3, 0.3), 9)):
        config = experiment(f"rope(base={base})")
        rows = [
            row(config, "perplexity", document=n, nll=nll + more[n], num_tokens=5, num_bytes=size)
            for n, nll in enumerate((1.0, 3.0))
        ]
        run = make_run(tmp_path / str(base), config)
        results.append((run, config, rows_lib.columns(rows)))
    (table,) = tables.tables(results)
    assert str(table.columns[-1].header) == "above the best\n[95% CI]"
    assert list(table.columns[-1].cells) == ["+0.1500 ± 0.0980", "best", "other text"]
    (alone,) = tables.tables(results[:1])
    assert "above the best\n[95% CI]" not in [str(column.header) for column in alone.columns]
