"""`python -m benchmarks gpu`: everything worth measuring on one GPU, in pieces."""

from benchmarks.pieces import DRY_RESULTS, Pieces

# Programs are kept for the pieces after it, and for when one is run again.
_MOST = {
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",
    "JAX_COMPILATION_CACHE_DIR": str(DRY_RESULTS / "compiled"),
}
# torch shares the device with a JAX that only says what it is.
_NONE = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

COMMAND = Pieces(
    name="gpu",
    text=(
        "What this code reaches on one GPU: a piece of minutes each, 24 minutes in all.\n"
        "A piece whose file is there is left out; each can be run alone, with --only."
    ),
    pieces={
        "conformance": "attention by cuDNN, forward and backward, beside plain float32 attention",
        "step": "tokens/s, MFU and memory of base_125m, 1B, and paper_2b at 4k and 32k tokens",
        "peer": "the same steps in PyTorch, beside ours (needs torch, transformers, and `step`)",
        "members": "sweeps of 1, 2, 4, 8 and 16 members beside as many runs",
        "profile": "the ten operations of paper_2b's step that take longest",
    },
    # 24 minutes in all.
    seconds={"conformance": 180, "step": 450, "peer": 420, "members": 300, "profile": 90},
    environment={**dict.fromkeys(("step", "members", "profile"), _MOST), "peer": _NONE},
    accelerator=True,
    resumes=True,
)
