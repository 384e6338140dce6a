# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/YOUR_ACCOUNT/ropewalk/blob/main/notebooks/01_attention.ipynb)

# %% [markdown]
# # Attention, from inside
#
# Three small models that differ in one thing each: in the base of their rotary frequencies, or in
# how many heads they have. All were trained on 128 tokens to recall what stands behind a key.
# Here they are loaded and looked into; nothing is trained. *Run all* takes about a minute on a
# CPU.

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
DOCUMENTS = 256  # of key-value recall, that the probes look at

# %% [markdown]
# ## Three models
#
# The checkpoints lie in the repository: parameters alone, in bfloat16 (`commands.jsonl` beside
# each says what made it). A run carries all it takes: configuration, tokenizer, frequencies.

# %%
import math

from experiment import load

runs = {
    "base 10, one head": load("notebooks/runs/base=10,num_heads=1"),
    "base 10, four heads": load("notebooks/runs/base=10,num_heads=4"),
    "base 10,000, one head": load("notebooks/runs/base=10000,num_heads=1"),
}
for run in runs.values():
    periods = 2 * math.pi / run.table.inv_freq[0, 0]
    print(f"{run}\n    periods of its pairs: {periods.min():.3g} to {periods.max():.3g} tokens")

# %% [markdown]
# ## What is asked of them
#
# Key-value recall: a text of keys and values, some of which come again. After a key that was seen
# before, the model has to say its value, so some head must find the place where it stands. Every
# question has a known distance, which makes it a ruler: how far does each model see?

# %%
from probes import Subject

subjects = {name: Subject(run=run, documents=DOCUMENTS) for name, run in runs.items()}
for name, subject in subjects.items():
    _, questions = (subject.capture, subject.questions)
    right_Q, distance_Q = subject.is_right, questions.distances
    near, far = right_Q[distance_Q <= 16].mean(), right_Q[distance_Q > 64].mean()
    print(f"{name:22} answers {near:4.0%} up to 16 tokens back, {far:4.0%} beyond 64")

# %% [markdown]
# ## Where attention goes
#
# One question whose answer stands some 30 tokens back. Each line is a head: the weight that it
# gives to every token before. The dotted line marks the value to be found.

# %%
from matplotlib import pyplot as plt

from probes.figures import COLORS
from reporting.looks import STYLE

plt.rcParams.update(STYLE)

inside, questions = subjects["base 10, one head"].asked
question = abs(questions.distances - 30).argmin()
row, query, key = questions.row_Q[question], questions.query_Q[question], questions.key_Q[question]
tokenizer = runs["base 10, one head"].tokenizer
words = [tokenizer.decode([int(i)]) for i in inside.tokens_BT[row]]
print(*words[key - 1 : query + 1], "?", f"\n{words[key]} stands {query - key} tokens back")

figure, axes = plt.subplots(len(runs), figsize=(9, 5), sharey=True, layout="constrained")
for ax, (name, subject) in zip(axes, subjects.items(), strict=True):
    inside, _ = (subject.capture, subject.questions)
    weights_NS = inside.weights(0, slice(query, query + 1))[row, :, 0]
    for head, weight_S in enumerate(weights_NS):
        ax.plot(weight_S[: query + 1], color=COLORS[head], lw=1.4, label=f"head {head}")
    ax.axvline(key, ls=":", color="0.4")
    ax.set(title=name, ylabel="weight")
    ax.legend(loc="upper left")
axes[-1].set_xlabel("place of the token")
plt.show()

# %% [markdown]
# ## Hover, zoom, compare
#
# The same for any text: point at a token to see what a head looks at, choose a head by its
# thumbnail, see its profile over distances with the periods of its pairs.

# %%
from probes import capture, view

TEXT = "".join(words[1:96])
view({name: capture(run, TEXT) for name, run in runs.items()}, tokenizer)

# %% [markdown]
# ## How far a matching key stands out
#
# Averaged over questions, queries and keys *before* rotation give, for every head, by how much a
# key that matches scores above the others at every distance: the bound B(m) of Men et al. with
# the weights that the model has learned. Where it comes to nothing, the head is blind. One head
# of base 10 is, from some 20 tokens on; four heads of the same base share the distances among
# them.

# %%
from IPython.display import display
from rich import print as show
from rich.table import Table

from probes import all_probes


def table(rows):
    """A line a row."""
    made = Table(*rows[0])
    for each in rows:
        made.add_row(*each.values())
    show(made)


def look(probe):
    """What a probe finds in each model: its figure, and a table of heads."""
    found = {name: [probe.measure(subject)] for name, subject in subjects.items()}
    display(probe.plot(found))
    table([{"model": name} | line for name, (one,) in found.items() for line in one.lines()])
    return found


matching = look(all_probes()["matching_keys"])

# %% [markdown]
# ## The same queries and keys, turned otherwise
#
# What was captured is not rotated yet, so that other frequencies can be put in their place
# without computing anything anew: here the queries and keys of base 10. How often does the
# heaviest weight fall on the value that is asked for? Not turned at all, they find it at most
# distances: what they say of content is right, and it is the rotation they were trained with that
# takes it away.

# %%
from model import rotary

inside, questions = subjects["base 10, one head"].asked
for name, variant in (
    ("as trained", None),
    ("base 30", rotary.parse("rope(base=30)")),
    ("base 10,000", rotary.parse("rope(base=1e4)")),
    ("not turned", rotary.parse("nope")),
):
    heaviest_BT = inside.weights(0, rotary=variant)[:, 0].argmax(axis=-1)
    found_Q = heaviest_BT[questions.row_Q, questions.query_Q] == questions.key_Q
    near = questions.distances <= 16
    near, far = found_Q[near].mean(), found_Q[~near].mean()
    print(f"{name:12} {near:4.0%} up to 16 tokens back, {far:4.0%} beyond")

# %% [markdown]
# ## What each head does
#
# By the scores that papers give heads: whether it looks at the token before, at the first one, at
# what came after the same token earlier (induction), at what is then said (retrieval).

# %%
scores = look(all_probes()["head_scores"])

# %% [markdown]
# ## Further
#
# - `02_effective_context.ipynb` trains models of several bases and measures how far each sees.
# - `03_own_frequencies.ipynb` does it for frequencies of your own.
# - Any run of your own: `load("runs/...")` above, or `python -m probes RUN` for one page of all
#   this.
