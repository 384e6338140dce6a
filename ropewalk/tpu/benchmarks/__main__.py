"""Speed and memory as ratios of things that alternate on one machine.

ropewalk bench cpu        step, members and peer
ropewalk bench gpu        step and members on one GPU, with larger models
ropewalk bench NAME       one benchmark; `step --device gpu` prints the table of docs/gpu.md
"""

import argparse
import os
import subprocess
import sys

from ropewalk.tpu.benchmarks import protocol
from ropewalk.tpu.benchmarks.protocol import Setting
from ropewalk.utils.command_line import Parser, at_least, exit_with

BENCHMARKS = {
    "step": "training step: tokens/s, memory, share of the device's matrix products and its peak",
    "members": "sweeps of up to 16 members beside as many single runs",
    "peer": "on a CPU, training step beside transformers' Llama with torch's AdamW (needs torch)",
}
SETS = {"cpu": ("step", "members", "peer"), "gpu": ("step", "members")}
# Every process gets these variables unless they are set.
ENVIRONMENT = {
    "cpu": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},  # 2 MiB pages, as in the Makefile
    "gpu": {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92"},
}


def parse(arguments: list[str]) -> tuple[Parser, argparse.Namespace]:
    """Return the parser, for further errors, and the parsed command line."""
    listed = "\n".join(f"  {name:<12} {summary}" for name, summary in BENCHMARKS.items())
    parser = Parser(description=f"{__doc__}\nbenchmarks:\n{listed}")
    add = parser.add_argument
    add("name", choices=[*ENVIRONMENT, *BENCHMARKS], metavar="NAME", help="cpu, gpu or a benchmark")
    add("--device", choices=[*ENVIRONMENT], default="cpu", help="sizes of NAME (cpu)")
    add("--rounds", type=at_least(1), default=5, help="alternations (default 5)")
    add("--dry", action="store_true", help="a dry run anywhere, with tiny models")
    return parser, parser.parse_args(arguments)


def run_set(arguments: argparse.Namespace) -> int:
    """Run the benchmarks of a device, each in its own process; return how many failed."""
    device = arguments.name
    failures = []
    for name in SETS[device]:
        command = [sys.executable, "-m", "ropewalk", "bench", name, "--device", device]
        command += ["--rounds", str(arguments.rounds)]
        command += ["--dry"] * arguments.dry
        process = subprocess.run(command, env=ENVIRONMENT[device] | os.environ)
        failures += [name] * bool(process.returncode)
    for name in failures:
        print(f"{name} failed; repeat it by: ropewalk bench {name} --device {device}")
    return len(failures)


def main() -> int:
    """Run the command line."""
    parser, arguments = parse(sys.argv[1:])
    if arguments.name in ENVIRONMENT:
        return run_set(arguments)
    for name, value in ENVIRONMENT[arguments.device].items():
        os.environ.setdefault(name, value)  # for processes that start later, JAX's backend too
    setting = Setting(arguments.device, arguments.rounds, arguments.dry)
    with parser.refusing(ValueError):
        protocol.run(arguments.name, setting)
    return 0


if __name__ == "__main__":
    exit_with(main)
