"""`python -m model.rotary show ...` and `... cookbook`: see `theory.show`.

The command asks configs and theory, which stand above this folder: here is only its door.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("theory.show", run_name="__main__", alter_sys=True)
