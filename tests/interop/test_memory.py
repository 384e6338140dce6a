"""Import holds one stacked array in memory, not the model."""

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.long]

PEAK = """
import resource, sys
from interop.__main__ import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def make_folder(path: Path, layers: int, mlp: int) -> int:
    """Write a folder of noise; return the bytes of its largest stacked array."""
    V, D, random = 64, 512, np.random.default_rng(0)

    def noise(*shape):
        return random.normal(size=shape).astype(ml_dtypes.bfloat16)

    tensors = {"model.embed_tokens.weight": noise(V, D), "model.norm.weight": noise(D)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= {
            **{f"{prefix}{n}_layernorm.weight": noise(D) for n in ("input", "post_attention")},
            **{f"{prefix}self_attn.{name}_proj.weight": noise(D, D) for name in "qkvo"},
            **{f"{prefix}mlp.{name}_proj.weight": noise(mlp, D) for name in ("gate", "up")},
            f"{prefix}mlp.down_proj.weight": noise(D, mlp),
        }
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    sizes = {"vocab_size": V, "hidden_size": D, "intermediate_size": mlp, "model_type": "llama"}
    sizes |= {"num_hidden_layers": layers, "num_attention_heads": 8, "rms_norm_eps": 1e-5}
    more = {"max_position_embeddings": 64, "tie_word_embeddings": True, "rope_theta": 1e4}
    (path / "config.json").write_text(json.dumps(sizes | more))
    return 2 * layers * D * mlp


def peak(*arguments: object, environment) -> int:
    """Return the peak memory of a process that runs one command, bytes."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return 1024 * int(done.stdout)


def test_import_holds_one_array_in_memory(tmp_path, environment):
    """One array and orbax's copies of it. The model, copied once, is more than 7 times that."""
    small, large = tmp_path / "small", tmp_path / "large"
    make_folder(small, layers=2, mlp=16)
    largest = make_folder(large, layers=24, mlp=6144)
    command = ("import", "--no-compare")  # which holds the model twice
    floor = peak(*command, small, tmp_path / "small-run", environment=environment)
    total = peak(*command, large, tmp_path / "large-run", environment=environment)
    assert total - floor < 5 * largest
