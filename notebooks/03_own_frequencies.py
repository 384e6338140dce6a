# %% [markdown]
# To open this notebook in Jupyter or Colab, see `docs/installation.md`.

# %% [markdown]
# # Your own frequencies
#
# A rotary variant is a vector: the rotation of each pair of a head's features per token. In this
# notebook you define one, compare it with the theory, train a small model with it and one with
# RoPE, measure how far back both can look up a value, and analyze their attention. On two CPU cores
# training takes about a minute, and *Run all* takes about four.
#
# ![B(m) by distance for several small bases](../docs/decay_small_bases.png)

# %%
# notebooks/make.py writes this cell, which finds the package.

# %% tags=["parameters"]
# In Colab, "/content/drive/MyDrive/ropewalk" outlasts the session, and Run all continues there.
WORKDIR = "runs/own_frequencies"
SETTINGS = ""  # further fields, for example train.num_steps=2000 (train.py --help-fields)

# %%
import os

if WORKDIR.startswith("/content/drive"):
    from google.colab import drive

    drive.mount("/content/drive")
os.makedirs(WORKDIR, exist_ok=True)

# %% [markdown]
# ## Define a variant
#
# A variant is one class in a file: `frequencies` returns the radians per token of each pair.
# RoPE's periods are a geometric series from 2π tokens. These periods are evenly spaced between
# two lengths, so no pair is very slow and many are nearly as slow as the slowest. If you change
# the variant, also change `WORKDIR`, because a run keeps the frequencies it was started with.

# %%
# %%writefile {WORKDIR}/even.py
"""Evenly spaced periods."""

import dataclasses

import numpy as np

from ropewalk.model.rotary import Rotary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Even(Rotary):
    """The period of pair i is shortest + i / (R - 1) (longest - shortest) tokens."""

    shortest: float
    longest: float

    def frequencies(self, rotary_dim):
        """Return float64 `[rotary_dim // 2]`, radians per token."""
        return 2 * np.pi / np.linspace(self.shortest, self.longest, rotary_dim // 2)


# %% [markdown]
# ## Predictions
#
# The figure shows B(m) = Σ cos(m ω), the bound of Men et al. If a model uses all pairs equally, a
# matching key at distance m scores above the others by an amount proportional to B(m). By that
# theory recall ends where B(m) is first negative; trained models recalled beyond this distance
# (`docs/recall.md`). The cell prints D_H, a second bound: the distance up to which one head with
# the best weights, and keys of random codes, finds one of 33 keys half of the time. Models that
# learn codes exceed it (`docs/theory.md`).

# %%
from IPython.display import Image, display

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.theory import capability, show
from ropewalk.utils.plugins import allow

LENGTH = 128  # tokens that the models below are trained on
OWN = f"{WORKDIR}/even.py:Even(shortest=8,longest=256)"
allow(f"{WORKDIR}/even.py")
VARIANTS = {"RoPE, base 10": "rope(base=10)", "even periods": OWN}

vectors = {}
for name, variant in VARIANTS.items():
    config = overrides.apply(find_config("demo"), [f"model.rotary={variant}", "model.num_heads=1"])
    vectors[name] = config.model.position_table(LENGTH).inv_freq[0, 0]
display(show.draw_curves(vectors, 2 * LENGTH))
for name, inv_freq in vectors.items():
    bound = capability.bound_l50(inv_freq[None], num_others=32, longest=LENGTH)
    print(f"{name}: D_H of one head: {bound} tokens")

# %% [markdown]
# ## Train
#
# The sweep trains the variant and RoPE of base 10 on the same rows, from the same weights. If you
# run it again, it continues from the last checkpoint.

# %%
MEMBERS = "model.rotary=" + ",".join(VARIANTS.values())
# %run -m ropewalk.sweep demo --workdir {WORKDIR}/runs {MEMBERS} model.num_heads=1 {SETTINGS}

# %% [markdown]
# ## Measure
#
# After a repeated key a model must predict its value. L50, the effective context, is the distance
# at which accuracy first falls halfway from its best to a guess.

# %%
# %run -m ropewalk.evaluate {WORKDIR}/runs
# %run -m ropewalk.report {WORKDIR}/runs
display(Image(f"{WORKDIR}/runs/accuracy_by_distance.png", width=800))

# %% [markdown]
# ## Attention analysis
#
# Above: by how many standard deviations (d′) a matching key scores above the others, at every
# distance. This is the bound above with the trained weights in place of equal ones. Below: how much
# each pair of features contributes.

# %%
from matplotlib import rc_context

from ropewalk import load
from ropewalk.experiment.run import find_runs
from ropewalk.probes import Subject, all_probes
from ropewalk.utils.figures import STYLE

runs = find_runs([f"{WORKDIR}/runs"])
subjects = {name: Subject(run=load(run.path)) for name, run in zip(VARIANTS, runs, strict=True)}
for name in ("matching_keys", "frequency_use"):
    probe = all_probes()[name]
    with rc_context(STYLE):
        display(probe.plot({name: [probe.measure(subject)] for name, subject in subjects.items()}))
    print(" ".join(probe.caption.split()))

# %% [markdown]
# ## Next steps
#
# - Several variants in one sweep: `model.rotary=A,B,C`; different variants by layer or head:
#   `model.rotary=[A,B]` (`docs/rotary.md`).
# - To add a variant to the repository, put its file in `model/rotary/` (`CONTRIBUTING.md`).
