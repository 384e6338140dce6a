import csv
import io
import math

import pytest

from ropewalk.reporting import results
from tests.reporting.helpers import answers, experiment, make_run, make_sweep, read, row


def table(path) -> list[dict[str, str]]:
    members = read(path)
    return list(csv.DictReader(io.StringIO(results.to_csv(members))))


def test_a_retrieval_line_and_one_for_each_seed(tmp_path):
    """Seeds that recall 19 and 39 tokens: their geometric mean is 27.2."""
    folder = make_sweep(tmp_path, ["base=10,seed=0", "base=10,seed=1"])
    for seed, reach in ((0, 20), (1, 40)):
        config = experiment("rope(base=10)", seed=seed)
        make_run(folder / f"base=10,seed={seed}", config, answers(config, reach))
    both, first, second = table(folder)
    assert (both["member"], both["task"], both["kind"]) == ("base=10", "kv", "retrieval")
    assert (both["seed"], both["seeds"], both["documents"]) == ("", "2", "16")
    assert both["answers"] == str(2 * 16 * 127)
    assert float(both["chance"]) == pytest.approx(1 / 64, rel=1e-5)
    assert float(both["l50"]) == pytest.approx((19.5 * 39.5) ** 0.5, rel=0.02)
    assert float(both["l50_low"]) < 19.5 and float(both["l50_high"]) > 39.5
    assert float(both["l85"]) < float(both["l50"])
    assert float(both["score"]) == pytest.approx((19 + 39) / 2 / 127, abs=0.01)
    # First distance with B_m < 0, and (pi/2) b^(62/64) and 2 pi b^(62/64).
    assert both["theory_length"] == "5"
    assert float(both["quarter_period"]) == pytest.approx(14.617, abs=1e-3)
    assert float(both["full_period"]) == pytest.approx(58.470, abs=1e-3)
    for line, seed, l50, right in ((first, "0", 19.5, 19), (second, "1", 39.5, 39)):
        assert (line["seed"], line["seeds"], line["answers"]) == (seed, "1", str(16 * 127))
        assert float(line["l50"]) == pytest.approx(l50, rel=0.02)
        assert line["l50_low"] == line["l50_high"] == ""
        assert float(line["score"]) == pytest.approx(right / 127, abs=0.01)


def test_the_score_of_seeds_with_unequal_documents_is_the_mean_of_the_table(tmp_path):
    """Seeds that recall 19 and 39 of 127 tokens, in 64 and 16 documents: (19 + 39) / 2 / 127."""
    folder = make_sweep(tmp_path, ["seed=0", "seed=1"])
    for seed, reach, documents in ((0, 20, 64), (1, 40, 16)):
        config = experiment("rope(base=10)", seed=seed)
        make_run(folder / f"seed={seed}", config, answers(config, reach, documents=documents))
    (member,) = read(folder)
    assert float(table(folder)[0]["score"]) == pytest.approx((19 + 39) / 2 / 127, abs=1e-3)
    assert member.measurements[0].value == member.estimates["kv"].mean_accuracy


def test_lines_of_text(tmp_path):
    """(1 * 30 + 3 * 10) / 40 = 1.5 nats; 60 nats over 90 bytes and 12 words."""
    config = experiment("rope(base=10)")
    rows = [
        row(config, "perplexity", nll=1.0, num_tokens=30, num_bytes=60, num_words=8),
        row(config, "perplexity", nll=3.0, num_tokens=10, num_bytes=30, num_words=4, document=1),
    ]
    make_run(tmp_path / "text", config, rows)
    (line,) = table(tmp_path / "text")
    assert float(line["nll"]) == 1.5
    assert float(line["perplexity"]) == pytest.approx(math.exp(1.5), rel=1e-5)
    assert float(line["bits_per_byte"]) == pytest.approx(60 / math.log(2) / 90, rel=1e-5)
    assert float(line["word_perplexity"]) == pytest.approx(math.exp(60 / 12), rel=1e-5)
    assert line["documents"] == "2"
    assert line["l50"] == line["score"] == line["verdict"] == ""
    # Three nats a token and a token a byte would be a perplexity of 3 million.
    byte_like = row(config, "perplexity", nll=3.0, num_bytes=1, num_words=1)
    make_run(tmp_path / "bytes", config, [byte_like])
    (line,) = table(tmp_path / "bytes")
    assert line["word_perplexity"] == "" and float(line["bits_per_byte"]) > 4
