"""A plain Llama on text of yours: JSON lines, Parquet or plain text in a folder (docs/own_text.md).

    ropewalk train own_text --workdir runs/mine data.path=FOLDER
    ropewalk sweep own_text --workdir runs/bases data.path=FOLDER model.rotary.base=100,1e4

All rows are text: the model has no key smearing and no aligned projections, and sees no retrieval
documents, unless `data.retrieval_fraction=SHARE` asks for them.
"""

from ropewalk.configs.changes import change
from ropewalk.configs.language_model import language_model

configs = [
    change(
        language_model,
        name="own_text",
        question="What does a plain Llama learn from text of yours, and how far does it look back?",
        members=(),
        data=dict(source="files", retrieval_fraction=0.0),
        train=dict(eval_every=100, save_every=200),
        evals=dict(tasks=("perplexity", "repeated")),
    )
]
