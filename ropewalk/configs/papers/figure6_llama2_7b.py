"""Figure 6 of Men et al. 2024 (arXiv 2405.14591) at its own scale: Llama 2 7B, fine-tuned.

Question: is there a base below which Llama 2 7B, fine-tuned for 32k tokens, cannot retrieve over
them? (`figure6_finetune_bases` asks the same at smaller scales.)

Commands: import the published weights as a run; fine-tune it once per base, with 1000 steps of 4
million tokens; export one run.

    ropewalk import DOWNLOADED/Llama-2-7b-hf runs/llama2_7b
    ropewalk train figure6_llama2_7b --workdir runs/figure6_llama2_7b/1e4 model.rotary.base=1e4
    ropewalk train figure6_llama2_7b --workdir runs/figure6_llama2_7b/1e5 model.rotary.base=1e5
    ropewalk train figure6_llama2_7b --workdir runs/figure6_llama2_7b/2e5 model.rotary.base=2e5
    ropewalk train figure6_llama2_7b --workdir runs/figure6_llama2_7b/6e5 model.rotary.base=6.4e5
    ropewalk train figure6_llama2_7b --workdir runs/figure6_llama2_7b/5e6 model.rotary.base=5e6
    ropewalk train figure6_llama2_7b --workdir runs/figure6_llama2_7b/1e9 model.rotary.base=1e9
    ropewalk evaluate runs/figure6_llama2_7b/*
    ropewalk report runs/figure6_llama2_7b/*
    ropewalk export runs/figure6_llama2_7b/6e5 exported
    lm_eval --model hf --model_args pretrained=exported,add_bos_token=False --tasks wikitext

Memory: `--check --devices 64` estimates it for 64 chips, and `ropewalk aot figure6_llama2_7b
--topology v5p:4x4x4 start_from=None` compiles the step for them. All six members in one program
(`sweep.py`) would not fit.

Confirms: LongEval's lines are retrieved over all of the 32k tokens with bases above the bound
(6.3e5 by `ropewalk theory bound --length 32k`) and not with bases below it, at perplexities within
2%.

Refuted if: a base below the bound retrieves over the whole length, or a base above it does not,
having learned the task at short distances.

Measured by: lines and pg19 (paper).

Published: Llama 2 7B was fine-tuned at 32768 tokens with bases around the bound of 6.4e5 (Figure 6
and Table 2). Perplexity hardly differs. LongEval's accuracy falls below the bound.
"""

from ropewalk.configs.changes import change
from ropewalk.configs.papers.figure6_finetune_bases import configs as smaller

*_, paper = smaller

configs = [
    change(
        paper,
        name="figure6_llama2_7b",
        question="Below which base does Llama 2 7B, fine-tuned for 32k tokens, not retrieve over "
        "them?",
        # A chip has one row's half at a time.
        train=dict(accumulate=4, save_every=250),
        mesh=dict(fsdp=-1, sequence=2),
    )
]
