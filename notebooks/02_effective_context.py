# %% [markdown]
# To open this notebook in Jupyter or Colab, see `docs/installation.md`.

# %% [markdown]
# # Effective context of models of three bases
#
# This notebook trains three small models that differ only in the base of their rotary
# frequencies. It measures how far each can recall, compares that with the theory, evaluates each
# model with other frequencies, and analyzes its attention. Training takes about a minute on two
# CPU cores.
#
# ![Effective context against RoPE base](../docs/effective_context.png)

# %%
# notebooks/make.py writes this cell, which finds the code.

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
# Key-value recall at every distance. *Effective context* is the distance at which accuracy first
# falls half-way. The lower panels show accuracy over all distances, and in the worst bin. The
# report page, `report.html` in `WORKDIR`, has all numbers.

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
# The probes capture queries and keys before rotation. The logit gap of a matching key over the
# others is the bound B(m) of Men et al. with the weights of the model. The first figure shows it
# for each head, with its zeros; the second the contribution of each pair.

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
