"""Twenty updates on eight devices, laid out in many ways, are those of one device."""

from pathlib import Path

import jax
import numpy as np
import pytest

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.run import RunDirectory
from ropewalk.training.sweep import train_plan
from tests.data.helpers import plain_text, write_jsonl
from tests.models import make_plan
from tests.training.helpers import data_state

pytestmark = pytest.mark.long

PLAIN = (
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.shift_keys=true",
    "model.window=[none,20]",
)
# Two members that differ in all that members may.
OTHER = (
    "model.rotary.base=10", "model.window=9", "train.learning_rate=1e-3", "seed=1", "data.seed=0",
)  # fmt: skip
MLA = ("model.window=[20,none]", "train.optimizer=muon")
OTHER_BLOCK = (
    "model.norm=layer", "model.norm_position=both", "model.qk_norm=true", "model.out_bias=true",
    "model.qk_norm_across_heads=true", "model.qkv_bias=true", "model.mlp_bias=true",
    "model.mlp_gate=false", "model.activation=gelu", "model.parallel_residual=true",
    "model.scale_embedding=true", "model.scale_dim=5",
)  # fmt: skip
MODELS = {
    "other block": ("tiny", [PLAIN + OTHER_BLOCK]),
    "plain": ("tiny", [PLAIN]),
    "members": ("tiny", [PLAIN, PLAIN + OTHER]),
    "mla": ("mla_tiny", [MLA]),
}
MESHES = [
    ("plain", "fsdp=8"),
    ("members", "sweep=2 sequence=2 tensor=2"),
    ("mla", "fsdp=2 sequence=2 tensor=2"),
    ("other block", "fsdp=2 sequence=2 tensor=2"),
    *(("plain", mesh) for mesh in ("data=8", "data=4 tensor=2", "sequence=8")),
    ("plain", "data=2 fsdp=2 sequence=2"),
]


SCRIPT = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 8)
from tests.training.test_meshes import MESHES, train

folder, *data = sys.argv[1:]
for model, mesh in MESHES:
    axes = [f"mesh.{axis}" for axis in mesh.split()]
    train(model, f"{folder}/{model} {mesh}", *data, "mesh.data=1", *axes)
"""


def train(model: str, folder: Path | str, *changes: str) -> list[RunDirectory]:
    """Train the members of a model together."""
    name, members = MODELS[model]
    configs = [overrides.apply(find_config(name), [*member, *changes]) for member in members]
    runs = [RunDirectory(Path(folder) / str(index)) for index in range(len(configs))]
    assert train_plan(make_plan(configs, runs))
    return runs


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> list[str]:
    """Overrides: rows of several documents each, and every fourth a retrieval document."""
    folder = tmp_path_factory.mktemp("documents")
    texts = [plain_text(number, num_words=1 + number % 8) for number in range(1500)]
    write_jsonl(folder / "documents.jsonl", texts)
    return ["data.source=jsonl", f"data.path={folder}", f"data.prepared_root={folder}/prepared"]


@pytest.fixture(scope="module")
def on_one(data, tmp_path_factory) -> dict[str, list[RunDirectory]]:
    """The runs of each model, on this process's one device."""
    assert jax.device_count() == 1
    models = "members", "mla", "other block"
    runs = {model: train(model, tmp_path_factory.mktemp(model), *data) for model in models}
    return runs | {"plain": runs["members"][:1]}


@pytest.fixture(scope="module")
def on_eight(data, tmp_path_factory, run_script) -> Path:
    """A folder with the runs on each mesh, by one process of eight devices."""
    folder = tmp_path_factory.mktemp("meshes")
    run_script("-c", SCRIPT, folder, *data)
    return folder


@pytest.mark.parametrize(("model", "mesh"), MESHES)
def test_a_mesh_trains_like_one_device(model, mesh, on_one, on_eight):
    """Twenty losses and gradient norms to 1e-5, from the same rows."""
    for index, expected in enumerate(on_one[model]):
        run = RunDirectory(on_eight / f"{model} {mesh}" / str(index))
        rows, expected_rows = run.read_metrics(), expected.read_metrics()
        assert [row["step"] for row in rows] == list(range(1, 21))
        assert not any(row["skipped"] for row in rows)
        for name in ("loss", "grad_norm"):
            values = [[row[name] for row in run_rows] for run_rows in (rows, expected_rows)]
            np.testing.assert_allclose(*values, rtol=1e-5, err_msg=name)
        assert data_state(run) == data_state(expected)
