"""What limits recall: the theory length of a head's frequencies, its parameters, or its keys?

Each file defines a card; docs/recall.md is the page of the results.
"""

from ropewalk.studies.capability.measures import sections as sections
from ropewalk.studies.capability.recipe import configs as configs
