"""Speed and memory as ratios of things that alternate on one machine.

python -m benchmarks cpu        all benchmarks of a CPU, under ten minutes; writes records
python -m benchmarks gpu        all benchmarks of one GPU, 24 minutes; writes records
python -m benchmarks NAME       one benchmark; prints its results
"""

import utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import machine, suite
from benchmarks.suite import BENCHMARKS, DRY_RESULTS, ENVIRONMENT, RESULTS, Setting
from utils.command_line import Parser, exit_with
from utils.messages import nearest


def parse(arguments: list[str]) -> tuple[Parser, argparse.Namespace]:
    """Return the parser, for further errors, and the parsed command line."""
    listed = "\n".join(f"  {name:<12} {item.summary}" for name, item in BENCHMARKS.items())
    parser = Parser(
        prog="python -m benchmarks",
        description=f"{__doc__}\nbenchmarks:\n{listed}",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("name", choices=[*ENVIRONMENT, *BENCHMARKS], metavar="NAME", help="cpu, gpu or a benchmark")
    add("--device", choices=[*ENVIRONMENT], default="cpu", help="sizes and goals of NAME (cpu)")
    add("--rounds", type=_count, default=5, help="alternations (default 5)")
    add("--dry", action="store_true", help="a dry run anywhere, with tiny models")
    add("--out", type=Path, metavar="DIR", help="folder of the records (benchmarks/results)")
    add("--resume", action="store_true", help="skip NAME if its record in --out is complete")
    add("--only", metavar="NAMES", help="cpu, gpu: these benchmarks, separated by commas")
    add("--again", action="store_true", help="gpu: repeat benchmarks whose record is complete")
    add(
        "--into",
        type=Path,
        metavar="FILE",
        help="cpu, gpu: measure nothing; write the records as tables into a document\n"
        "(docs/performance.md), between <!-- python -m benchmarks cpu --> and <!-- end of cpu -->",
    )
    return parser, parser.parse_args(arguments)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number from 1 to 1000")
    return int(text)


def run_set(parser: Parser, arguments: argparse.Namespace) -> int:
    """Run the benchmarks of a device, or write their tables; return how many failed."""
    device, known = arguments.name, suite.set_of(arguments.name)
    names = known if arguments.only is None else arguments.only.split(",")
    for name in names:
        if name not in known:
            parser.error(f"unknown benchmark {name!r} of {device}; {nearest(name, known)}")
    out = (arguments.out or (DRY_RESULTS if arguments.dry else RESULTS)).absolute()
    if arguments.into:
        text = suite.document(device, names, out)
        if not arguments.into.is_file():
            parser.error(f"--into {arguments.into}: no such file")
        page = suite.insert(text, arguments.into.read_text("utf-8"), device)
        if page is None:
            parser.error(f"{arguments.into} has no marks for {device}; see --help")
        arguments.into.write_text(page, "utf-8")
        return 0
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {out}: cannot create the folder ({error.strerror})")
    failures = [name for name in names if not _run_in_process(name, device, arguments, out)]
    where = out.relative_to(machine.ROOT) if out.is_relative_to(machine.ROOT) else out
    print(f"written to {where}; --into docs/performance.md writes the tables of that page")
    for name in failures:
        print(f"{name} failed; repeat it by: python -m benchmarks {device} --only {name}")
    return len(failures)


def _run_in_process(name: str, device: str, arguments: argparse.Namespace, out: Path) -> bool:
    """Run one benchmark in its own process; return True if it succeeded."""
    command = [sys.executable, "-m", "benchmarks", name, "--device", device, "--out", str(out)]
    command += ["--rounds", str(arguments.rounds), *["--dry"] * arguments.dry]
    # A GPU may be lent for minutes, so that a second run only adds what is missing.
    on_gpu = device == "gpu"
    command += ["--resume"] * (on_gpu and not arguments.again)
    limit = BENCHMARKS[name].seconds[device] + 60 if on_gpu and not arguments.dry else None
    environment = ENVIRONMENT[device] | (suite.TORCH_ENVIRONMENT if name == "peer" else {})
    try:
        process = subprocess.run(
            command, cwd=machine.ROOT, env=environment | os.environ, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return False
    return process.returncode == 0


def main() -> int:
    """Run the command line."""
    parser, arguments = parse(sys.argv[1:])
    if arguments.name in ENVIRONMENT:
        return run_set(parser, arguments)
    setting = Setting(arguments.device, arguments.rounds, arguments.dry)
    try:
        suite.run(arguments.name, setting, arguments.out, resume=arguments.resume)
    except ValueError as error:
        parser.refuse(error)
    return 0


if __name__ == "__main__":
    exit_with(main)
