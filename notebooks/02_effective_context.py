# %% [markdown]
# To open this notebook in Jupyter or Colab, see `docs/installation.md`.

# %% [markdown]
# # Effective context of models of three bases
#
# This notebook trains three small models that differ only in the base of their rotary
# frequencies. It measures how far back each model can look up a value, compares that with the
# theory, evaluates each model with other frequencies, and analyzes its attention. On two CPU cores
# training takes about two minutes, and *Run all* takes about five.
#
# ![Effective context against RoPE base](../docs/effective_context.png)

# %%
# notebooks/make.py writes this cell, which finds the package.

# %% tags=["parameters"]
# In Colab, "/content/drive/MyDrive/ropewalk" outlasts the session, and Run all continues there.
WORKDIR = "runs/effective_context"
SETTINGS = ""  # further fields, for example seed=0,1 or train.num_steps=2000

# %%
import os

if WORKDIR.startswith("/content/drive"):
    from google.colab import drive

    drive.mount("/content/drive")
os.makedirs(WORKDIR, exist_ok=True)

# %% [markdown]
# ## Train
#
# One command trains one member per base. Members read the same rows and start from the same
# weights. If you run it again, it continues from the last checkpoint.

# %%
SWEEP = f"{WORKDIR}/bases"
MEMBERS = "model.rotary.base=10,30,10000 model.num_heads=1"
# %run -m ropewalk.sweep demo --workdir {SWEEP} {MEMBERS} {SETTINGS}

# %% [markdown]
# ## Measure
#
# Key-value recall: the text has pairs of a key and a value, and after a repeated key the model must
# predict its value. *Effective context* is the distance at which accuracy first falls halfway from
# its best to a guess. *Theory length* is the first distance at which the sum of the cosines of all
# rotation angles is negative. The page `report.html` in `WORKDIR` has all numbers.

# %%
from IPython.display import Image, display

# %run -m ropewalk.evaluate {SWEEP}
# %run -m ropewalk.report {SWEEP}
display(Image(f"{SWEEP}/effective_context.png", width=800))

# %% [markdown]
# ## Evaluation with other frequencies
#
# A matrix: each model is trained with one base and evaluated at twice the length, with its
# trained frequencies and with two variants that scale them. This needs no training, because a
# variant is a vector.

# %%
VARIANTS = "trained,dynamic_yarn,dynamic_ntk_aware"
# %run -m ropewalk.evaluate {SWEEP} --rotary {VARIANTS} --lengths 256 --tasks kv

# %% [markdown]
# ## Attention analysis
#
# The probes read queries and keys before rotation. A *logit gap* is the score of the matching key
# minus the mean score of the other keys. The first figure shows, for each head, the gap in standard
# deviations of the other keys' scores (d′), by distance. The second shows how much each pair of
# features contributes to it.

# %%
# %run -m ropewalk.probes {SWEEP}
for name in ("matching_keys", "frequency_use"):
    display(Image(f"{SWEEP}/probes/{name}.png", width=800))

# %% [markdown]
# ## Next steps
#
# - Four heads of base 10 recall farther than one: use `model.num_heads=1,4` above, and another
#   `WORKDIR`.
# - Several seeds, shown as one member with their spread: `SETTINGS = "seed=0,1,2"`.
# - `01_attention.ipynb` shows the attention of each head, token by token;
#   `03_own_frequencies.ipynb` uses your own frequencies.
