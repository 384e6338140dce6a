# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/YOUR_ACCOUNT/ropewalk/blob/main/notebooks/03_own_frequencies.ipynb)

# %% [markdown]
# # Frequencies of your own
#
# A rotary variant is a vector: how far each pair of a head's features turns per token. Here you
# write one down, see what theory makes of it, train a small model with it beside an ordinary one,
# measure how far each sees, and look inside. Training takes about a minute on two CPU cores.

# %%
# In Colab this fetches the code; elsewhere the code is here already.
import os
import subprocess

REPOSITORY = "https://github.com/YOUR_ACCOUNT/ropewalk"
if os.path.exists("../experiment"):  # opened in the folder of notebooks
    os.chdir("..")
elif not os.path.exists("experiment"):
    if not os.path.exists("ropewalk"):
        subprocess.run(["git", "clone", "-q", "--depth", "1", REPOSITORY, "ropewalk"], check=True)
    os.chdir("ropewalk")

# %run notebooks/setup.py
# %matplotlib inline

# %% tags=["parameters"]
# In Colab, "/content/drive/MyDrive/ropewalk" outlasts the session: Run all goes on there.
WORKDIR = "runs/own_frequencies"
SETTINGS = ""  # further fields, as train.num_steps=2000 (train.py --help-fields lists them)

# %%
import os

if WORKDIR.startswith("/content/drive"):
    from google.colab import drive

    drive.mount("/content/drive")
os.makedirs(WORKDIR, exist_ok=True)

# %% [markdown]
# ## Invent
#
# One class in a file: `frequencies` says how many radians each pair turns per token. RoPE's
# periods are a geometric series from 2π tokens on. These are spread evenly between two lengths,
# so that no pair is very slow and many are nearly as slow as the slowest. Change it as you like;
# give it another name in `WORKDIR` too, since a run keeps the frequencies it was begun with.

# %%
# %%writefile {WORKDIR}/even.py
"""Periods at equal steps."""

import dataclasses

import numpy as np

from model.rotary import Rotary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Even(Rotary):
    """Pair i comes round after shortest + i / (R - 1) (longest - shortest) tokens."""

    shortest: float
    longest: float

    def frequencies(self, rotary_dim):
        """float64 `[rotary_dim // 2]`, radians per token."""
        return 2 * np.pi / np.linspace(self.shortest, self.longest, rotary_dim // 2)


# %% [markdown]
# ## What theory makes of it
#
# The figure has the bound of Men et al.: if a model uses all pairs alike, a matching key stands
# out at distance m by about B(m) = Σ cos(m ω), and sees no farther than where that is first
# negative. Under it, how far one head could see with the best weights there are, whatever
# training finds: at every distance up to there it could tell a matching key from 32 others every
# other time.

# %%
from IPython.display import Image, display

from configs import find_config
from experiment import overrides
from settings.folders import allow
from theory import capability, figures

LENGTH = 128  # tokens that the models below are trained on
OWN = f"{WORKDIR}/even.py:Even(shortest=8,longest=256)"
allow(f"{WORKDIR}/even.py")
VARIANTS = {"RoPE, base 10": "rope(base=10)", "own": OWN}

vectors = {}
for name, variant in VARIANTS.items():
    config = overrides.apply(find_config("demo"), [f"model.rotary={variant}", "model.num_heads=1"])
    vectors[name] = config.model.rotary_table(LENGTH).inv_freq[0, 0]
display(figures.decay_curves(vectors, 2 * LENGTH))
for name, inv_freq in vectors.items():
    seen = capability.forecast(inv_freq[None], num_others=32, longest=LENGTH)
    print(f"{name}: one head could see {'beyond ' if seen.beyond else ''}{seen.l50} tokens")

# %% [markdown]
# ## Train it
#
# Beside RoPE of base 10, with the same rows, from the same weights. Run again, it goes on from
# the last checkpoint, or has nothing to do.

# %%
MEMBERS = ",".join(VARIANTS.values())
# %run sweep.py demo --workdir {WORKDIR}/runs model.rotary={MEMBERS} model.num_heads=1 {SETTINGS}

# %% [markdown]
# ## Measure it
#
# Key-value recall at every distance: where does accuracy first fall half-way?

# %%
# %run evaluate.py {WORKDIR}/runs
# %run report.py {WORKDIR}/runs
display(Image(f"{WORKDIR}/runs/accuracy_by_distance.png", width=800))

# %% [markdown]
# ## Look inside
#
# By how much a matching key stands out at every distance, as the model has learned it, and which
# of your pairs do it: the theory's picture above, with the weights that training found.

# %%
from matplotlib import rc_context

from experiment import load
from experiment.run import find_runs
from probes import Subject, all_probes
from reporting.looks import STYLE

found = find_runs([f"{WORKDIR}/runs"])
subjects = {name: Subject(run=load(run.path)) for name, run in zip(VARIANTS, found, strict=True)}
for name in ("matching_keys", "frequency_use"):
    probe = all_probes()[name]
    with rc_context(STYLE):
        display(probe.plot({label: [probe.measure(each)] for label, each in subjects.items()}))
    print(" ".join(probe.caption.split()))

# %% [markdown]
# ## Further
#
# - Several of them at once, as members of one sweep: `model.rotary=A,B,C`; different ones by
#   layer or head: `model.rotary=[A,B]` (`docs/rotary.md`).
# - A variant to stay: a file in `model/rotary/` (`CONTRIBUTING.md`).
