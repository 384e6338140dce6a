# %% [markdown]
# To open this notebook in Jupyter or Colab, see `docs/installation.md`.

# %% [markdown]
# # One update by hand
#
# From text to new parameters in one page: the functions that `ropewalk train` calls, with the
# shapes of their arrays. *Run all* takes less than a minute on two CPU cores. Read it before
# `ropewalk/training/step.py`.
#
# The letters of a shape: **B** rows of a batch, **T** tokens of a row, **L** layers, **R** rotary
# pairs of a head, **D** features of the model, **V** pieces of the vocabulary.

# %%
# notebooks/make.py writes this cell, which finds the package.

# %% tags=["parameters"]
BASE = 10_000.0  # of the rotary frequencies
UPDATES = 20

# %% [markdown]
# ## A batch
#
# A tokenizer turns a text into ids. A document begins with BOS and ends with EOS, and documents
# follow one another in one stream. A row is a stretch of the stream of T + 1 ids: each id is the
# target of the one before it. Positions restart with each document, and a token attends to tokens
# of its own segment only.

# %%
import inspect

import jax
import numpy as np

from ropewalk import load
from ropewalk.data import packing

B, T = 4, 32
tokenizer = load("notebooks/runs/base=10,num_heads=1").tokenizer
documents = [inspect.getsource(packing.pack), inspect.getsource(packing.TextRows.start)] * 2
stream = np.concatenate(
    [[tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id] for text in documents]
)
rows = np.stack([stream[T * row : T * row + T + 1] for row in range(B)]).astype(np.int32)
batch = packing.pack(rows, tokenizer.bos_id)
for name, column in batch.items():
    print(f"{name:12} {column.dtype} {column.shape}  {column[0, :8]} ...")

# %% [markdown]
# ## A model
#
# The rotary variant is a vector: how far each pair of features turns per token. It reaches the
# program as an array, so that one compiled program trains models of any base.

# %%
from ropewalk.experiment.config import TrainConfig
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary.rope import Rope
from ropewalk.training.programs import MemberArrays, StaticConfig
from ropewalk.training.step import init_state, train_step

model = ModelConfig(
    vocab_size=tokenizer.vocab_size,
    embed_dim=64,
    num_layers=2,
    num_heads=2,
    head_dim=32,
    mlp_dim=128,
    rotary=Rope(base=BASE),
)
train = TrainConfig(num_steps=UPDATES, warmup_steps=2, learning_rate=1.0)  # relative to the peak
config = StaticConfig(model.architecture, train)
member = MemberArrays(table=model.position_table(T), learning_rate=np.float32(3e-3))
state = init_state(config, seed=0)
print("frequencies [L, 1, R], radians per token:", member.table.inv_freq.shape)
for path, array in jax.tree.leaves_with_path(state.params):
    print(f"{jax.tree_util.keystr(path):40} {array.shape}")

# %% [markdown]
# ## Updates
#
# `train_step` computes the loss (nats per target), its gradient, and the new parameters. Training
# compiles it once (`jax.jit`) and calls it with the next rows; a sweep maps it over members.

# %%
step_fn = jax.jit(train_step, static_argnums=0)
for step in range(UPDATES):
    state, scalars = step_fn(config, state, member, batch, np.int32(step))
    if step % 5 == 0 or step == UPDATES - 1:
        print(f"update {step}: loss {scalars['loss']:.3f}, gradient {scalars['grad_norm']:.2f}")

# %% [markdown]
# A uniform guess among V = 512 pieces has a loss of ln 512 = 6.24 nats; an untrained model is a
# little worse. The loss falls quickly here, because every update reads the same four rows.
# `ropewalk/training/loop.py` reads new rows for each update, and logs, validates and saves.
