"""Prints the table of retrieval by distance in docs/published.md, from the rows of runs/smollm2."""

from itertools import pairwise

import numpy as np

from ropewalk.evals import rows
from ropewalk.evals.estimate.statistics import limits
from ropewalk.experiment.run import RunDirectory

answers = rows.read_run(RunDirectory("runs/smollm2"))
is_needle = np.char.startswith(answers["task"], "chat_needles(needles=16")
distance, right, nats = (answers[name][is_needle] for name in ("distance", "exact_match", "nll"))
# Documents of different commands are different ones.
commands = np.unique(answers["length"][is_needle], return_inverse=True)[1]
document = 100 * commands + answers["document"][is_needle]
edges = 128, 512, 1024, 1448, 2048, 3616, 5400, 8192, 11586
for start, stop in pairwise(edges):
    inside = (start <= distance) & (distance < stop)
    units = document[inside] == np.unique(document[inside])[:, None]  # [documents, answers]
    total_D1, right_D1 = units.sum(1, keepdims=True), units @ right[inside].astype(int)[:, None]
    print(start, stop, inside.sum(), limits(total_D1, right_D1, 1.96), nats[inside].mean())
