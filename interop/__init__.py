"""HOW a model travels: Hugging Face folders out and in, and who else asks our checkpoints.

python -m interop export RUN FOLDER      a folder that transformers opens, proved by its logits
python -m interop import FOLDER RUN      such a folder as a run: evaluate it, or start from it
"""
