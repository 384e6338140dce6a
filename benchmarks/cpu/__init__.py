"""`python -m benchmarks cpu`: what a machine without an accelerator does, in pieces."""

from benchmarks.pieces import Pieces

# 2 MiB pages, as the Makefile has them.
_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

_PIECES = {
    "limits": "matrix products and copies, one core and all: what the rest is held against",
    "step": "share of the machine's matrix products that a training step reaches",
    "members": "sweeps of 1, 2, 4 and 8 members beside as many runs, one after another",
    "context": "training steps on rows of 256 to 32k tokens, beside what FLOPs let expect",
    "width": "share of the machine's matrix products by width",
    "loop": "what saves and waiting for input take from the loop",
    "compile": "time to compile, and how it grows with layers",
    "startup": "a short run from its command to its end, compilation cached or not",
    "profile": "where a step's time goes: matrix products, and what is none",
    "peer": "a training step beside transformers' Llama with torch's AdamW, where torch is",
}

COMMAND = Pieces(
    name="cpu",
    text="What this code reaches on a CPU, beside what the machine can do: under ten minutes.",
    pieces=_PIECES,
    seconds={"context": 120, "peer": 150},
    environment=dict.fromkeys(_PIECES, _PAGES),
)
