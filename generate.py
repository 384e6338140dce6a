"""Generate text with a trained model: `python generate.py RUN --prompt TEXT`; see --help."""

from ropewalk.inference.command import exit_with, main

if __name__ == "__main__":
    exit_with(main)
