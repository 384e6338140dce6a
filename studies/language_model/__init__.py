"""What does a RoPE base cost a small language model, and at which distances?

docs/language_model.md has the claims and forecasts, which were committed before any row.
"""

from ropewalk.studies.language_model.figures import sections as sections
