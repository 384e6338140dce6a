"""Table 4 of Men et al. 2024 (arXiv 2405.14591): two extensions without a single unseen angle.

Question: of two methods that both keep all angles within what pretraining saw, does the one whose
B_m turns negative fail to retrieve where it does?

Found: Llama 2 7B, from 4096 to 32768 tokens. Method 1 (base 5e6) scores 0.33 and 0.27 at LongEval
with 15k and 30k tokens, with B_m >= 0 at every distance; Method 2 (fast pairs of a raised base,
slow ones interpolated) scores 0.40 and 0.00, with 97 and 2554 distances at which B_m < 0. So unseen
angles do not explain what fails (Section 5.5).

Commands: a parent at a short context, continued at eight times its length by either method, and
with its base unchanged.

    python train.py table4_methods_cpu --workdir runs/table4_methods_cpu/parent
    python sweep.py table4_methods_cpu --workdir runs/table4_methods_cpu/methods
    python evaluate.py runs/table4_methods_cpu/methods
    python report.py runs/table4_methods_cpu/methods

Cost: cpu 9.8e12 FLOP, about 2 minutes; gpu 1.8e16 FLOP, about 3 minutes; paper 8.2e20 FLOP, about
24 days of one H100.

Confirms: within the trained length Method 2 loses what Method 1 keeps, from about the first
distance at which its B_m < 0 (298 of 512 tokens, 66 distances in all; Method 1 has none below 725),
while at shorter distances it is no worse.
Refutes: both retrieve over the whole length. The quarter period says they will: it is 1088 tokens
for Method 2 and 11779 for Method 1, so this experiment tells the two predictions apart.
"""

import dataclasses

from configs.experiments import scales
from experiment.dotted import apply

QUESTION = "Does B_m < 0 matter where no angle is new?"

configs = [
    dataclasses.replace(
        apply(
            scales.CPU_SHORT,
            [
                "evals.tasks=[kv,perplexity]",
                "evals.lengths=[256,512]",
            ],
        ),
        name="table4_methods_cpu",
        question=QUESTION,
        members=tuple(
            ("start_from=runs/table4_methods_cpu/parent", *scales.CPU_LONGER, f"model.rotary={how}")
            for how in ("method1(base=1e4)", "method2(base=100,factor=8)", "rope(base=100)")
        ),
    ),
    dataclasses.replace(
        apply(
            scales.GPU,
            [
                "model.rotary.base=500",
                "data.context_length=512",
                "data.batch_size=128",
                "evals.tasks=[kv,lines,perplexity]",
                "evals.lengths=[2048,4096]",
            ],
        ),
        name="table4_methods_gpu",
        question=QUESTION,
        members=tuple(
            ("start_from=runs/table4_methods_gpu/parent", *scales.GPU_LONGER, f"model.rotary={how}")
            for how in ("method1(base=5e5)", "method2(base=500,factor=8)", "rope(base=500)")
        ),
    ),
    dataclasses.replace(
        apply(scales.LLAMA2_7B, ["evals.lengths=[15000,30000]"]),
        name="table4_methods_paper",
        question=QUESTION,
        members=tuple((f"model.rotary={how}",) for how in ("method1", "method2", "rope(base=1e4)")),
    ),
]
