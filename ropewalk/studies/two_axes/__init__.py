"""Which bases let a model both recall and order the tokens of its context?

docs/two_axes.md has the results. Claims were committed before any row. Known before: how far models
of one head recall, by base (`studies/capability`), and one trial of base 100 with seed 7, which no
claim counts: accuracy .998 in recall and .942 in `order`, .77 at distances from 64 tokens on.
"""

from ropewalk.studies.two_axes.measures import sections as sections
