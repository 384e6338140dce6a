"""Evaluations that do not fit are rejected before documents are generated."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest

import evaluate as cli
from evals import cost, runner, score
from model import transformer
from model.positions import stack_tables
from tests.test_evaluate import CONFIG, make_run

SMALL = dataclasses.replace(CONFIG.model, num_layers=2, vocab_size=4096, mlp_dim=512)


@pytest.fixture
def run(tmp_path, tokenizer):
    make_run(tmp_path / "run", CONFIG, tokenizer.model)
    return str(tmp_path / "run")


@pytest.mark.parametrize(
    "changes, B, T",
    [
        ({}, 64, 64),
        ({}, 1, 2**17),
        (dict(num_heads=8, num_kv_heads=2, head_dim=64, mlp_dim=64), 1, 2**16),
        (dict(num_layers=1, masked_distances=(4, 8)), 1, 2048),
    ],
)
def test_the_estimate_is_that_of_xla_within_a_factor_of_two(changes, B, T):
    model = dataclasses.replace(SMALL, **changes)
    config, table = model.forward_architecture(), model.position_table(64)
    params = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), transformer.abstract_params(config)
    )
    batch = score.Batch(*[jax.ShapeDtypeStruct((B, T), np.int32)] * 4)
    program = jax.jit(functools.partial(score._token_scores, config))
    sizes = program.lower(params, stack_tables([table]), batch).compile().memory_analysis()
    assert sizes is not None
    exact = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + sizes.output_size_in_bytes
    assert exact / 2 < cost.pass_bytes(config, table, B, T) < 2 * exact


@pytest.mark.parametrize("option", ["--lengths=1e9", "--documents=999999999999"])
def test_absurd_numbers_are_rejected_without_jax(run, run_script, option):
    code = "import sys; sys.modules['jax'] = None; import evaluate; evaluate.main()"
    done = run_script("-c", code, run, "--tasks=kv", option, check=False)
    name = option.strip("-").split("=")[0]
    assert done.returncode == 2 and re.fullmatch(f"evaluate.py: error: {name} .*\n", done.stderr)


@pytest.mark.parametrize(
    "free, options, message",
    [
        (2**24, "--lengths=131072", "length 131072 does not fit: .* fits is \\d+"),
        (2**24, "--documents=100000", "100,000 documents of kv .* fewer --documents"),
    ],
)
def test_nothing_is_generated_that_does_not_fit(run, monkeypatch, capsys, free, options, message):
    monkeypatch.setattr(cost, "free_device_memory", lambda: free)
    monkeypatch.setattr(cost, "free_host_memory", lambda: free)
    documents = runner.evals.parse("kv").documents
    generated = []

    def counted(self, context, numbers):
        generated.extend(numbers)
        return documents(context, numbers)

    monkeypatch.setattr(type(runner.evals.parse("kv")), "documents", counted)
    with pytest.raises(SystemExit):
        cli.main([run, "--tasks=kv", options])
    assert re.search(message, capsys.readouterr().err) and set(generated) <= {0}
