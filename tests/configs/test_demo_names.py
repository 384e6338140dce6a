"""Names of the demo's runs in help texts, docs and notebooks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "notebooks", "experiment", "evals", "inference", "interop", "model", "probes")
NAMES = {f"base={base},num_heads={heads}" for base in (10, 30, 10_000) for heads in (1, 4)}
NAMES |= {"rotary=nope,num_heads=1", "base=10000,num_heads=4,window=32"}


def test_runs_of_the_demo_are_named_as_the_demo_names_them():
    files = [*ROOT.glob("*.py"), *ROOT.glob("*.md")]
    files += [path for name in FOLDERS for path in (ROOT / name).rglob("*.*")]
    wrong = set()
    for path in files:
        if path.suffix in (".py", ".md"):
            names = re.findall(r"runs/demo/((?:base|rotary)=[\w=,.]*)", path.read_text("utf-8"))
            wrong |= {(path.name, name) for name in names if name.rstrip(",.") not in NAMES}
    assert not wrong
