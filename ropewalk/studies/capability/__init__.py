"""The study of what limits effective context: heads, frequencies, or the code of keys?

Each file defines a card. Two forecasts of each model, without fitted parameters, are stored before
its first run (`forecasts.py`): D_H's bound, and the recall that the minimal head learns (the rows
of C1 to C11 are older than it). The claims of a card go beyond these numbers.
"""

from ropewalk.studies.capability.forecasts import check_forecasts as check_forecasts
from ropewalk.studies.capability.forecasts import forecast as forecast
from ropewalk.studies.capability.parts import sections as sections
from ropewalk.studies.capability.recipe import configs as configs
