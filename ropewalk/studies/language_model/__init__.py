"""How far back does a language model copy, by its RoPE base, and what does a small base cost?

docs/language_model.md has the results. What was known when claims were committed:

A pilot of other models (two layers, 1M tokens) had found .030 +- .003 nats for base 10, and a copy
gain of .031 +- .009 against .066. Half lags got their shortest lag, 8 tokens, after claims a to g,
in a trial of the measurements after 100 of 1,221 updates. Claims h and i were committed after two
seeds of claims a to c and before any row of their own, claims j and k when bases 100 and 10,000 had
been measured after 40M tokens on a GPU, before those of j were measured. A first comparison of j is
not counted (j3 and j4 held, j1, j2 and j5 refuted): the runs had other tokenizers than their
reference, and the rule that they must agree was made then. Claims l were committed before any of
their models was trained. The reach was defined after the models of l were measured, and claims n
then, when of their models base 1,000 alone was measured, and not yet base 1e4, by which its reach
is defined; bases 100 and 10,000 had been trained. Claims k1, k3, n1 and m were dropped before their
models had rows. Claims o and p were committed before any of their models was trained, and their
rivals' forecasts with them.
"""

from ropewalk.studies.language_model.figures import sections as sections
