"""Import and export of Hugging Face folders.

ropewalk export RUN FOLDER           export a run as a folder for transformers
ropewalk import FOLDER RUN           import such a folder as a run
"""
