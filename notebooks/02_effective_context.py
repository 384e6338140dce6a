# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/YOUR_ACCOUNT/ropewalk/blob/main/notebooks/02_effective_context.ipynb)

# %% [markdown]
# # How far does a model see?
#
# Three small models are trained side by side, alike in all but the base of their rotary
# frequencies. How far each can recall is measured and drawn beside what theory says; then each is
# given other frequencies than it was trained with; then it is looked into, to see why. Training
# takes about a minute on two CPU cores.

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
WORKDIR = "runs/effective_context"
SETTINGS = ""  # further fields, as seed=0,1 or train.num_steps=2000

# %%
import os

if WORKDIR.startswith("/content/drive"):
    from google.colab import drive

    drive.mount("/content/drive")
os.makedirs(WORKDIR, exist_ok=True)

# %% [markdown]
# ## Train
#
# One command, one member for each base: they read the same rows and start from the same weights.
# Run again, it goes on from the last checkpoint, or has nothing to do.

# %%
SWEEP = f"{WORKDIR}/bases"
MEMBERS = "model.rotary.base=10,30,10000 model.num_heads=1"
# %run sweep.py demo --workdir {SWEEP} {MEMBERS} {SETTINGS}

# %% [markdown]
# ## Measure
#
# Key-value recall at every distance. *Effective context* is the distance at which accuracy has
# first fallen half-way. Below it, accuracy over all distances, and in the worst bin of them. The
# report page beside the figure, `report.html` in `WORKDIR`, has all the numbers.

# %%
from IPython.display import Image, display

# %run evaluate.py {SWEEP}
# %run report.py {SWEEP}
display(Image(f"{SWEEP}/effective_context.png", width=800))

# %% [markdown]
# ## Other frequencies than it was trained with
#
# A matrix: trained with one base, evaluated at twice the length with its own frequencies, and
# with two variants that stretch them. Nothing is trained for it: a variant is a vector.

# %%
# %run evaluate.py {SWEEP} --rotary trained,dynamic_yarn,dynamic_ntk_aware --lengths 256 --tasks kv
# %run report.py {SWEEP}
display(Image(f"{SWEEP}/matrix_kv_256.png", width=800))

# %% [markdown]
# ## Why
#
# Queries and keys are captured before rotation. What a matching key gains over others at every
# distance is the bound B(m) of Men et al. with the weights that the model has learned. Where it
# comes to nothing stands in the first figure beside the effective context that was measured and
# the periods of the slowest pair; the second has the whole curve; the third, which pairs make it.

# %%
# %run -m probes {SWEEP}
# %run report.py {SWEEP}
for name in ("inside", "probes/matching_keys", "probes/frequency_use"):
    display(Image(f"{SWEEP}/{name}.png", width=800))

# %% [markdown]
# ## Further
#
# - Four heads of base 10 see beyond the edge of one: `model.num_heads=1,4` in place of
#   `model.num_heads=1` above, and another `WORKDIR`.
# - Several seeds, shown as one with their spread: `SETTINGS = "seed=0,1,2"`.
# - `01_attention.ipynb` shows where each head looks, token by token; `03_own_frequencies.ipynb`
#   takes frequencies of your own.
