"""Imports of only what is used: a bare GPU machine, or Colab, trains; --help needs no JAX."""

HELP = {
    ("train.py", "--help"): "base_30m",
    ("train.py", "--help-fields"): "train.num_steps=500",
    ("sweep.py", "--help"): "usage: sweep.py",
    ("evaluate.py", "--help"): "lagcopy",
    ("report.py", "--help"): "usage: report.py",
}
SLIPS = [
    ("train.py", "tinny", "--workdir", "new"),
    ("train.py", "tiny", "--workdir", "new", "train.num_stps=2"),
    ("sweep.py", "tiny", "--workdir", "new", "model.rotary.base=10,0"),
    ("evaluate.py", "nowhere"),
    ("evaluate.py", ".", "--tasks", "kvv"),
    ("report.py", "nowhere"),
]
SCRIPT = """
import runpy, sys

absent = {absent}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ImportError(f"{{name}} is not there")

sys.meta_path.insert(0, Absent())
for sys.argv in map(list, {commands}):
    if "--help" in sys.argv[1]:
        absent.discard("scipy")  # which a task imports, and these list all of them
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        assert (stop.code or 0) == (0 if "--help" in sys.argv[1] else 2), sys.argv
    else:
        raise AssertionError(sys.argv)
"""
ABSENT = {"grain", "array_record", "zstandard", "tensorflow_datasets", "matplotlib"}
ABSENT |= {"jax", "flax", "optax", "orbax", "scipy", "mpmath"}


def test_help_and_slips_of_the_hand_need_no_jax(run_script):
    """They take a third of a second, not three."""
    done = run_script("-c", SCRIPT.format(absent=ABSENT, commands=[*SLIPS, *HELP]))
    assert all(text in done.stdout for text in HELP.values())
    assert done.stderr.count(": error: ") == len(done.stderr.splitlines()) == len(SLIPS)
