# %% [markdown]
# To open this notebook in Jupyter or Colab, see `docs/installation.md`.

# %% [markdown]
# # Attention analysis
#
# This notebook loads three small models and shows what their heads attend to. The models differ in
# the base of their rotary frequencies or in their number of heads. They were trained to look up
# values in texts of 128 tokens, with one million tokens each. *Run all* takes about two minutes on
# two CPU cores and trains nothing.
#
# ![Attention of two models on one document](../docs/viewer.png)

# %%
# notebooks/make.py writes this cell, which finds the package.

# %% tags=["parameters"]
DOCUMENTS = 256  # documents of key-value recall for the probes

# %% [markdown]
# ## Three models
#
# The repository contains the checkpoints: parameters only, in bfloat16 (`commands.jsonl` next to
# each has its commands). A run directory is complete: configuration, tokenizer, frequencies.

# %%
import math

from ropewalk import load

runs = {
    "base 10, one head": load("notebooks/runs/base=10,num_heads=1"),
    "base 10, four heads": load("notebooks/runs/base=10,num_heads=4"),
    "base 10,000, one head": load("notebooks/runs/base=10000,num_heads=1"),
}
for run in runs.values():
    periods = 2 * math.pi / run.table.inv_freq[0, 0]
    print(f"{run}\n    periods of its pairs: {periods.min():.3g} to {periods.max():.3g} tokens")

# %% [markdown]
# ## The task
#
# Key-value recall: a text has pairs of a key and a value, and some keys occur again. After a
# repeated key the model must predict its value. We call this place a *question*. To answer it, some
# head must attend to the value, and the distance to the value is known.
#
# A `Subject` is one model with the documents that it reads, its activations and its answers. All
# probes below measure a `Subject`.

# %%
from ropewalk.probes import Subject

subjects = {name: Subject(run=run, documents=DOCUMENTS) for name, run in runs.items()}
for name, subject in subjects.items():
    right_Q, distance_Q = subject.is_right, subject.questions.distances
    near, far = right_Q[distance_Q <= 16].mean(), right_Q[distance_Q > 64].mean()
    print(f"{name:22} answers {near:4.0%} up to 16 tokens back, {far:4.0%} beyond 64")

# %% [markdown]
# ## Attention weights of one question
#
# One question at a distance of about 30 tokens. Each line is a head: its weight on every token
# before the query. The dotted line marks the value.

# %%
from matplotlib import pyplot as plt

from ropewalk.utils.figures import FAINT, HEADS, STYLE

plt.rcParams.update(STYLE)

subject = subjects["base 10, one head"]
captured, questions = subject.capture, subject.questions
question = abs(questions.distances - 30).argmin()
row, query, key = questions.row_Q[question], questions.query_Q[question], questions.key_Q[question]
tokenizer = runs["base 10, one head"].tokenizer
pieces = [tokenizer.decode([int(i)]) for i in captured.tokens_BT[row]]
print(*pieces[key - 1 : query + 1], "?", f"\n{pieces[key]} is {query - key} tokens back")

figure, axes = plt.subplots(len(runs), figsize=(9, 5), sharey=True, layout="constrained")
for ax, (name, subject) in zip(axes, subjects.items(), strict=True):
    weights_NS = subject.capture.weights(0, slice(query, query + 1))[row, :, 0]
    for head, weight_S in enumerate(weights_NS):
        ax.plot(weight_S[: query + 1], color=HEADS[head], lw=1.4, label=f"head {head}")
    ax.axvline(key, ls=":", color=FAINT)
    ax.set(title=name, ylabel="weight")
    ax.legend(loc="upper left")
axes[-1].set_xlabel("position of the token")
plt.show()

# %% [markdown]
# ## The interactive viewer
#
# The same for any text: point at a token to see a head's weights, select a head by its thumbnail,
# and compare its profile over distances with the periods of its pairs.

# %%
from ropewalk.probes import capture, view

TEXT = "".join(pieces[1:96])
view({name: capture(run, TEXT) for name, run in runs.items()}, tokenizer)

# %% [markdown]
# ## Logit gap of the matching key
#
# A *logit gap* is the score of the matching key minus the mean score of the other keys. This probe
# averages queries and keys *before* rotation over all questions. From these averages it computes
# each head's logit gap at every distance m. It is the B(m) of Men et al., with the weights of the
# model in place of equal ones.
#
# - The *zero of B(m)* is the distance at which the average gap vanishes: 20 tokens for the single
#   head of base 10. Single questions differ, so recall falls around this distance.
# - *d′* (d-prime) is the gap divided by the standard deviation of the other keys' scores. The
#   dashed line is the d′ that a head needs to answer half of the questions.
#
# `probe.measure(subject)` returns the numbers, and `probe.plot` draws them.

# %%
from IPython.display import display
from rich import print as show
from rich.table import Table

from ropewalk.probes import all_probes


def print_table(rows):
    """Print a line per row."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*row.values())
    show(table)


def run_probe(probe):
    """Run a probe on each model, and show its figure and a table of heads."""
    results = {name: probe.measure(subject) for name, subject in subjects.items()}
    display(probe.plot({name: [result] for name, result in results.items()}))
    lines = [{"model": name} | line for name, result in results.items() for line in result.lines()]
    print_table(lines)
    return results


matching = run_probe(all_probes()["matching_keys"])

# %% [markdown]
# ## The same queries and keys with other frequencies
#
# Queries and keys are captured before rotation, so other frequencies need no forward pass. This
# cell rotates the queries and keys of base 10 at other frequencies, and counts how often the
# largest weight is on the answer. Without rotation it is at most distances. So queries and keys
# have the right content, and the rotation that they were trained with limits the distance.

# %%
from ropewalk.model import rotary

subject = subjects["base 10, one head"]
captured, questions = subject.capture, subject.questions
for name, variant in (
    ("as trained", None),
    ("base 30", rotary.parse("rope(base=30)")),
    ("base 10,000", rotary.parse("rope(base=1e4)")),
    ("unrotated", rotary.parse("nope")),
):
    largest_BT = captured.weights(0, rotary=variant)[:, 0].argmax(axis=-1)
    hit_Q = largest_BT[questions.row_Q, questions.query_Q] == questions.key_Q
    near = questions.distances <= 16
    near, far = hit_Q[near].mean(), hit_Q[~near].mean()
    print(f"{name:12} {near:4.0%} up to 16 tokens back, {far:4.0%} beyond")

# %% [markdown]
# ## Head scores
#
# Four scores from papers, each the mean attention to one kind of token: the previous one, the first
# one, the one after an earlier occurrence of the same token (induction heads), and the answer
# (retrieval heads).

# %%
scores = run_probe(all_probes()["head_scores"])

# %% [markdown]
# ## Next steps
#
# - `02_effective_context.ipynb` trains models of several bases and measures their effective
#   context.
# - `03_own_frequencies.ipynb` does the same with your own frequencies.
# - For your own runs: `load("runs/...")` above, or `ropewalk probes RUN` for a page with all of
#   these figures.
