"""Import and export of Hugging Face folders, and evaluation with lm-evaluation-harness.

ropewalk export RUN FOLDER           export a run as a folder for transformers
ropewalk import FOLDER RUN           import such a folder as a run
ropewalk lm_eval RUN --tasks NAME    evaluate a run with lm-evaluation-harness
"""
