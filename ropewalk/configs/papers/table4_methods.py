"""Table 4 of Men et al. 2024 (arXiv 2405.14591): two extensions without unseen angles.

Question: two methods keep all angles within the range of pretraining. Does the one whose B_m
becomes negative fail to retrieve at those distances?

Commands: a parent at a short context, continued at eight times its length by either method, and
with its base unchanged.

    ropewalk train table4_methods_cpu --workdir runs/table4_methods_cpu/parent
    ropewalk sweep table4_methods_cpu --workdir runs/table4_methods_cpu/methods
    ropewalk evaluate runs/table4_methods_cpu/methods
    ropewalk report runs/table4_methods_cpu/methods

Confirms: within the trained length Method 2 loses what Method 1 keeps, from about the first
distance with B_m < 0 on (298 of 512 tokens, 66 distances in all; Method 1 has none below 725). At
shorter distances it is no worse.

Refuted if: both retrieve over the whole length, as their quarter periods predict (1088 tokens for
Method 2 and 11779 for Method 1). So this experiment separates the two predictions.

Measured by: kv (cpu, gpu); lines (paper).

Published: Llama 2 7B, from 4096 to 32768 tokens. Method 1 (base 5e6) has B_m >= 0 at every distance
and scores 0.33 and 0.27 at LongEval with 15k and 30k tokens (here 15,360 and 30,720). Method 2
(fast pairs of a raised base, slow pairs interpolated) has 97 and 2554 distances with B_m < 0 and
scores 0.40 and 0.00. So unseen angles do not explain the failure (Section 5.5).
"""

from ropewalk.configs.papers import scales

configs = scales.continued(
    "table4_methods",
    "Does B_m < 0 matter where no angle is new?",
    "model.rotary",
    cpu=(
        ("method1(base=1e4)", "method2(base=100,factor=8)", "rope(base=100)"),
        dict(lengths=(256, 512)),
    ),
    gpu=(
        ("method1(base=5e5)", "method2(base=500,factor=8)", "rope(base=500)"),
        dict(tasks=("kv", "lines", "perplexity"), lengths=(2048, 4096)),
    ),
    paper=(("method1", "method2", "rope(base=1e4)"), dict(lengths=(15_360, 30_720))),
)
