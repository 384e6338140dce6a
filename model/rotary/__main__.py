"""Entry point of `python -m model.rotary show ...` and `... cookbook`; see `theory.show`.

The command needs configs and theory, which this folder must not import.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("ropewalk.theory.show", run_name="__main__", alter_sys=True)
