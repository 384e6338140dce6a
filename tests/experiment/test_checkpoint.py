"""Saving."""

import gc
import json
import sys

import jax.numpy as jnp

from configs import find_config
from experiment.checkpoint import Checkpoints, DataState
from experiment.config import to_dict
from experiment.run import RunDirectory


def test_saves_keep_no_memory(tmp_path):
    """TensorStore 0.1.86 leaks 500 blocks of Python memory in a save whose bytes Orbax counts."""
    (tmp_path / "config.json").write_text(json.dumps({"config": to_dict(find_config("tiny"))}))
    checkpoints = Checkpoints(RunDirectory(tmp_path), keep=1)
    arrays, data = {"scale": jnp.ones(3)}, DataState(fingerprint="x")
    config = find_config("tiny")
    blocks = []
    for step in range(40):
        checkpoints.save(step, arrays, arrays, data, config)
        if step % 20 == 19:
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    checkpoints.close()
    assert blocks[1] - blocks[0] < 20 * 100
