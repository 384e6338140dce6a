"""Import and export of Hugging Face folders, and evaluation with lm-evaluation-harness.

python -m interop export RUN FOLDER           export a run as a folder for transformers
python -m interop import FOLDER RUN           import such a folder as a run
python -m interop lm_eval RUN --tasks NAME    evaluate a run with lm-evaluation-harness
"""
