"""Estimates of `--check`: own arithmetic for the config `own_text`, and what XLA says of a step."""

import os
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import cost, overrides
from ropewalk.experiment.checkpoint import Checkpoints, DataState
from ropewalk.experiment.cost import flops_per_token
from ropewalk.experiment.devices import planned_bytes
from ropewalk.experiment.mesh import mesh_sizes
from ropewalk.experiment.run import RunDirectory
from ropewalk.experiment.stages import split
from ropewalk.tpu.benchmarks import shapes
from ropewalk.tpu.benchmarks.program import TrainStep
from ropewalk.tpu.topology import find
from ropewalk.training import budget
from ropewalk.training.members import abstract_state
from tests.conftest import ROOT, UNOPTIMIZED
from tests.in_process import call
from tests.models import tiny_config


def check(path, *overrides):
    command = "train.py", "own_text", "--workdir", path / "run", f"data.path={path}", "--check"
    return call(*command, *overrides)


def test_check_states_rows_passes_time_and_disk(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("1234567 " * 125_000)  # 1 MB
    monkeypatch.setattr(budget, "_matmul_rate", lambda: 2e11)
    output = check(tmp_path)
    assert "rows: 100% text (data.retrieval_fraction=0)" in output
    # 12 bits of vocabulary, .27 bytes each; 1221 steps of 16 rows of 512 tokens.
    tokens, num_read = 1e6 / 3.24, 1221 * 16 * 512
    assert f"text: about {tokens:,.0f} tokens; 32 passes over the text, more than 4" in output
    assert round(num_read / tokens) == 32
    # Per token 6 FLOP for each of 4,210,688 weights of matrices, and attention over half of 512.
    # 10M parameters on rows of 512, the nearest measured model, reach .66 of a matrix product.
    flops = num_read * (6 * 4_210_688 + 3 * 2 * 4 * 256 * 512)
    assert f"time: {flops:.2g} FLOPs, about {flops / 1.32e11 / 60:.0f} min at 66% of" in output
    # Parameters and two moments, float32, of two checkpoints and of one that is being written.
    assert "4,212,992 parameters" in output
    num_bytes = 3 * 3 * 4 * 4_212_992 + 2 * tokens
    assert re.search(rf"\ndisk: about {num_bytes / 1e9:.3g} GB .*; [\d.e+]+ GB are free", output)
    usage = shutil.disk_usage(tmp_path)._replace(free=10**8)
    monkeypatch.setattr(budget.shutil, "disk_usage", lambda path: usage)
    assert "\nwarning: disk: about" in check(tmp_path)


def test_check_states_the_share_of_retrieval_documents_and_ids_that_no_text_uses(tmp_path):
    (tmp_path / "a.txt").write_text("words " * 100)
    tasks = ("data.retrieval_fraction=0.125", "data.retrieval_tasks=[kv]")
    output = check(tmp_path, *tasks, "data.subset_shares=[[github,0.5]]")
    assert "tokens before data.subset_shares; at least" in output and "no text uses" not in output
    assert "may be too few: training and held-out text need 512 each" in output
    assert "87.5% text, 12.5% retrieval documents (kv), whose loss counts only answers" in output
    unused = f"the tokenizer has 700 ids, and the model {4096 - 700} more, which no text uses"
    assert f"{unused}; model.vocab_size={6 * 128}" in check(tmp_path, "data.vocab_size=700")


def test_a_plan_for_other_machines_needs_neither_text_nor_parent_nor_their_memory(tmp_path):
    """`model_size_paper` has members that start from a run; its tokenizer is another one's."""
    command = "model_size_paper", "--workdir", tmp_path, "--check", "--devices", 8
    tasks = "train.eval_tasks=kv", "train.eval_every=9"
    output = call("sweep.py", *command, *tasks, "data.path=nowhere")
    for missing in ("runs/paper_2b", "nowhere, data.tokenizer=runs/baichuan2_7b/tokenizer.model"):
        assert re.search(f"not on this machine, and not checked: .*{missing}\n", output)
    assert "mesh: sweep=1, data=1, fsdp=8" in output and "% of the peak of 8 H100" in output
    # Of 7.5e9 parameters of four members, 12 bytes each, an eighth.
    (state,) = re.findall(r": ([\d.]+) GiB of parameters and optimizer state", output)
    assert float(state) == pytest.approx(7_505_973_248 * 4 * 12 / 8 / 2**30, rel=1e-3)
    here = call("train.py", "paper_2b", "--workdir", tmp_path, "--check", status=2)
    assert "needs data.path=FILE" in here


def test_rates_are_sorted_as_numbers(monkeypatch):
    rates = [
        cost.RATES[0]._replace(chip="H100", parameters=4**n, share=s)
        for n, s in ((9, 0.09), (15, 0.38), (12, 0.1))
    ]
    monkeypatch.setattr(cost, "RATES", rates)
    stages = [split(tiny_config(f"model.mlp_dim={n}"))[0] for n in (64, 2**22, 2**16)]
    assert cost.describe_shares("H100", stages) == "9% to 38%"


def flops_per_key(width: int) -> float:
    """FLOPs that XLA counts for a query's two products with a key, forward and backward."""
    keys = 64
    query, arrays = jnp.zeros(width), jnp.zeros((keys, width))
    step = jax.value_and_grad(lambda q, k, v: ((k @ q) @ v).sum(), (0, 1, 2))
    return jax.jit(step).lower(query, arrays, arrays).cost_analysis()["flops"] / keys


def test_attention_flops_are_those_of_the_keys_that_a_window_shows():
    """One layer sees 16 of 64 tokens, the other all; XLA counts some sums too."""
    T, H = 64, 32
    config = tiny_config(
        *("model.window=[16,none]", f"data.context_length={T}", "model.num_heads=4"),
        *(f"model.head_dim={H}", "model.num_kv_heads=4", "model.embed_dim=128"),
    )
    seen = [min(i, window) for window in (16, T) for i in range(1, T + 1)]
    counted = 4 * flops_per_key(H) * sum(seen) / T
    matrices = 2 * (4 * 128 * 128 + 3 * 128 * 64) + 512 * 128 + 5 * 128
    assert flops_per_token(config) - 6 * matrices == pytest.approx(counted, rel=0.1)


@pytest.fixture
def as_users_compile():
    """Memory and FLOPs are those of fused programs."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", os.environ.get(UNOPTIMIZED, "1") == "1")


SHAPE = ("model.num_layers=1", "model.embed_dim=128", "model.num_heads=4", "model.num_kv_heads=4")
SHAPE += ("model.head_dim=32", "model.mlp_dim=512", "data.batch_size=8", "mesh.data=1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "num_members"),
    [((), 1), (("train.accumulate=2", "model.window=16"), 1), (("model.remat=dots",), 2)],
)
def test_a_step_takes_the_memory_and_flops_that_xla_reports(changes, num_members, as_users_compile):
    """XLA counts the body of a loop once: one microbatch of one member, of one layer."""
    config = tiny_config(*SHAPE, *changes)
    compiled = TrainStep(*[config] * num_members).compiled
    axes = mesh_sizes(config, num_members, 1)
    memory = budget.step_memory(config, axes, num_members, in_turn=True)
    assert sum(memory) == pytest.approx(planned_bytes(compiled), rel=0.1)
    tokens = 8 * 64 // config.train.accumulate
    # XLA's attention multiplies all 64 keys, and masks.
    full = flops_per_token(tiny_config(*SHAPE)) + 3 * 4 * 2 * 32 * 64
    assert tokens * full == pytest.approx(compiled.cost_analysis()["flops"], rel=0.1)


COMPILED = r"`(\w+) --topology (\S+)(?: --members (\d+))?([^`]*)` \| ([\d.]+) of [\d.]+ GiB"


@pytest.mark.slow
def test_memory_is_within_a_tenth_of_what_xla_planned_for_gpus():
    """The steps of docs/gpu.md: compiled for 8 and 32 GPUs, and planned on an H100."""
    page = (ROOT / "docs/gpu.md").read_text()
    steps = [
        (overrides.apply(find_config(name), more.split()), find(chips).num_chips, members, gib)
        for name, chips, members, more, gib in re.findall(COMPILED, page)
    ]
    compiled = page.partition("## Compiled")[2]
    planned = re.findall(r"^\| (\w[\w ]*) \| .* \| ([\d.]+) \|$", compiled, flags=re.M)
    steps += [(shapes.train_shapes("gpu")[name], 1, "1", gib) for name, gib in planned]
    # Those of remat=full were planned before it stored attention's output.
    steps = [step for step in steps if step[0].model.remat != "full"]
    assert len(steps) == 3
    for config, num_devices, members, gib in steps:
        num_members = int(members or 1)
        axes = mesh_sizes(config, num_members, num_devices)
        memory = budget.step_memory(config, axes, num_members, in_turn=False)
        assert sum(memory) / 2**30 == pytest.approx(float(gib), rel=0.1), config.name


def test_a_split_state_takes_its_share():
    """In each of four devices a quarter of what `fsdp` splits: all but 3 norms of 128."""
    config = tiny_config(*SHAPE, "mesh.fsdp=4")
    axes = mesh_sizes(config, 1, 4)
    state = budget.step_memory(config, axes, 1, in_turn=False).state
    matrices = 4 * 128 * 128 + 3 * 128 * 512 + 512 * 128
    assert state == pytest.approx(12 * (matrices / 4 + 3 * 128), rel=1e-3)


def test_written_checkpoints_take_the_disk_that_was_estimated(tmp_path):
    """Two stages that save every two steps and keep one: steps 6, 8 and 10 are there at the end."""
    train = ("train.num_steps=6", "train.save_every=2", "train.keep=1")
    config = tiny_config(*SHAPE, *train, "stages=[[train.num_steps=4]]")
    run, most, random = RunDirectory(tmp_path), 0, np.random.default_rng(0)
    run.write_config(config, [])
    # Trained moments are not zero, which would be compressed.
    shapes = abstract_state(config, 1, jax.make_mesh((1,) * 5, tuple(mesh_sizes(config, 1, 1))))
    state = jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype), shapes)
    for step in (2, 4, 6, 8, 10):
        checkpoints = Checkpoints(run, keep=1, always=[6, 10])
        checkpoints.save(step, state.params, state.opt_state, DataState(fingerprint=""), config)
        checkpoints.close()
        files = [path for path in run.checkpoints_path.rglob("*") if path.is_file()]
        most = max(most, sum(path.stat().st_size for path in files))
        checkpoints.remove_old(run.steps(), step)
    estimate = budget.checkpoint_bytes(split(config))
    assert estimate == pytest.approx(most, rel=0.1)
    size = sum(x.size for x in jax.tree.leaves(state.params))
    assert estimate == pytest.approx(3 * 3 * 4 * size, rel=1e-3)
