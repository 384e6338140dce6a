"""Kubernetes manifests for a run or a sweep on TPU slices of GKE, from `tpu/jobset.yaml`.

    python -m tpu.jobset demo --workdir /runs/demo --topology v5e:4x4 --image IMAGE
    python -m tpu.jobset paper_2b --mode run --workdir /runs/paper_2b --topology v5p:4x4x4 ...

The manifests go to standard output; tpu/apply.sh hands them to kubectl. --workdir lies under /runs,
where the claim is mounted: a volume that all pods see (Filestore, or a bucket through GCS FUSE).
"""

import json
import re
import string
import sys
from pathlib import Path
from typing import NamedTuple

from configs import argument_parser, find_config
from experiment import overrides
from experiment.overrides import make_members
from tpu import topology as topology_lib
from tpu.topology import Topology

TEMPLATE = Path(__file__).with_name("jobset.yaml")

# Exit statuses after which another start may help: another process or a device was lost
# (experiment.distributed.ANOTHER_START), or a signal ended it. Not 1, an error of the program or a
# run that diverged, and not 2, what a person has to mend.
RESTART_ON = [42, *range(127, 256)]


class Job(NamedTuple):
    """What runs on one slice.

    Attributes:
      name: of the JobSet, a DNS label.
      member: written into the annotations: a label could not hold its commas and parentheses.
      command: program and arguments, which no shell sees.
    """

    name: str
    member: str
    command: list[str]


def manifest(
    job: Job, topology: Topology, *, image: str, claim: str, spot: bool, restarts: int
) -> str:
    """One JobSet as YAML.

    Args:
      job: what runs.
      topology: the slice.
      image: container image with the repository in /ropewalk and its packages installed.
      claim: the persistentVolumeClaim that becomes /runs.
      spot: on spot nodes.
      restarts: of the whole JobSet before it counts as failed.
    """
    selector = {
        "cloud.google.com/gke-tpu-accelerator": topology.chip.gke_accelerator,
        "cloud.google.com/gke-tpu-topology": topology.shape,
    }
    if spot:
        selector["cloud.google.com/gke-spot"] = "true"
    values = job._asdict() | {
        "restarts": restarts,
        "restart_on": RESTART_ON,
        "hosts": topology.num_hosts,
        "node_selector": selector,
        "image": image,
        "chips_per_host": topology.chips_per_host,
        "claim": claim,
    }
    # JSON is YAML: whatever a name holds, it stays one value.
    text = TEMPLATE.read_text(encoding="utf-8")
    return string.Template(text).substitute({key: json.dumps(x) for key, x in values.items()})


def job_name(workdir: str, number: int | None = None) -> str:
    """A DNS label made of a directory's last part, short enough for the pods' names."""
    slug = re.sub(r"[^a-z0-9]+", "-", Path(workdir).name.lower())[:30].strip("-")
    return "-".join(filter(None, ["ropewalk", slug, "" if number is None else str(number)]))


def make_jobs(mode: str, config_name: str, workdir: str, given: list[str]) -> list[Job]:
    """The jobs of a run or a sweep.

    Raises:
      ValueError: for a config, an override or a sweep that `train.py` or `sweep.py` would refuse.
    """
    config = find_config(config_name)
    arguments = [config_name, "--workdir", workdir, *given]
    if mode == "run":
        overrides.apply(config, given)
        return [Job(job_name(workdir), config_name, ["python", "train.py", *arguments])]
    names = [name for name, _, _ in make_members(config, given)]
    program = ["python", "sweep.py"]
    if mode == "sweep":
        return [Job(job_name(workdir), "; ".join(names), [*program, *arguments])]
    return [
        Job(job_name(workdir, number), name, [*program, "--member", str(number), *arguments])
        for number, name in enumerate(names)
    ]


def main() -> int:
    """Command line; exit status 2 after one line for a user's mistake."""
    parser = argument_parser("python -m tpu.jobset", __doc__, overrides.SWEEP_HELP)
    add = parser.add_argument
    add(
        "--mode",
        choices=("members", "sweep", "run"),
        default="members",
        help="members: a JobSet for each member of the sweep, each on a slice of its own\n"
        "sweep: one for all members, in one program on one slice (sweep.py)\n"
        "run: one for a single run (train.py)",
    )
    add("--topology", required=True, metavar="T", help="v5e:4x4, v5p:4x4x4 ...")
    add("--image", required=True, help="container image, repository in /ropewalk")
    add("--claim", default="runs", help="persistentVolumeClaim of /runs (%(default)s)")
    add("--spot", action="store_true", help="on spot nodes")
    add("--restarts", type=int, default=100, help="at most this many (%(default)s)")
    arguments = parser.parse_intermixed_args()
    try:
        topology = topology_lib.find(arguments.topology)
        jobs = make_jobs(arguments.mode, arguments.config, arguments.workdir, arguments.overrides)
    except ValueError as error:
        parser.error(str(error))
    cluster = {name: getattr(arguments, name) for name in ("image", "claim", "spot", "restarts")}
    for job in jobs:
        print("---", manifest(job, topology, **cluster), sep="\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
