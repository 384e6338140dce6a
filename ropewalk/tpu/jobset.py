"""Kubernetes manifests of a run or sweep on TPU slices of GKE, from `tpu/jobset.yaml`.

    python -m ropewalk.tpu.jobset demo --workdir /runs/demo --topology v5e:4x4 --image IMAGE
    python -m ropewalk.tpu.jobset paper_2b --mode run --workdir /runs/2b --topology v5p:4x4x4 ...

The manifests go to standard output; tpu/apply.sh passes them to kubectl. --workdir is a folder of
/runs, where a volume that all pods share is mounted (Filestore, or a bucket through GCS FUSE), or
gs://BUCKET/DIR. With a bucket nothing is mounted, and the image needs the extra `gcs`.
"""

import json
import os
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ropewalk.configs import argument_parser, find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.overrides import make_members
from ropewalk.tpu.topology import Topology, find_slice
from ropewalk.utils.command_line import at_least, exit_with
from ropewalk.utils.errors import RESTART_STATUS
from ropewalk.utils.paths import check_path, in_bucket
from ropewalk.utils.plugins import allowed

TEMPLATE = Path(__file__).with_name("jobset.yaml")

# Exit statuses after which a restart may help: another process, a device or a bucket was lost
# (RESTART_STATUS), or a signal ended the process. Not 1 (an error, or a diverged run) and not 2 (a
# user's mistake).
RESTART_ON = [RESTART_STATUS, *range(127, 256)]


class Job(NamedTuple):
    """One JobSet on one slice.

    Attributes:
      name: of the JobSet, a DNS label.
      member: an annotation, because a label cannot hold its commas and parentheses.
      command: program and arguments; no shell reads them.
    """

    name: str
    member: str
    command: list[str]


def manifest(
    job: Job, topology: Topology, *, image: str, claim: str, spot: bool, restarts: int
) -> str:
    """Return one JobSet as YAML.

    Args:
      job: name and command.
      topology: the slice.
      image: container image with the repository in /ropewalk and its packages installed.
      claim: the persistentVolumeClaim that is mounted as /runs; empty for none.
      spot: use spot nodes.
      restarts: maximum number before the JobSet fails.
    """
    selector = {
        "cloud.google.com/gke-tpu-accelerator": topology.chip.gke_accelerator,
        "cloud.google.com/gke-tpu-topology": topology.shape,
    } | ({"cloud.google.com/gke-spot": "true"} if spot else {})
    values = job._asdict() | {
        "restarts": restarts,
        "restart_on": RESTART_ON,
        "hosts": topology.num_hosts,
        "node_selector": selector,
        "image": image,
        "chips_per_host": topology.chips_per_host,
        "mounts": [{"name": "runs", "mountPath": "/runs"}] if claim else [],
        "volumes": [{"name": "runs", "persistentVolumeClaim": {"claimName": claim}}] * bool(claim),
    }
    # JSON is YAML, and quotes every character of a name.
    text = TEMPLATE.read_text(encoding="utf-8")
    return string.Template(text).substitute({key: json.dumps(x) for key, x in values.items()})


def job_name(workdir: str, suffix: str = "") -> str:
    """Return a DNS label from the last part of a path, short enough for the names of pods.

    A pod is named NAME-slice-0-999-abcde, 63 characters at most; `suffix` has 8 at most.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", Path(workdir).name.lower())[:28].strip("-")
    return "-".join(filter(None, ["ropewalk", slug, suffix]))


def make_jobs(
    mode: str,
    config_name: str,
    workdir: str,
    changes: list[str],
    topology: Topology,
    code_files: Sequence[str] = (),
) -> list[Job]:
    """Return the jobs of a run or a sweep, or the evaluation or report that follows them.

    The programs may execute `code_files`, whose paths are those in the image.

    Raises:
      ValueError: if the folder would end with the pods, if `train.py` or `sweep.py` would refuse
        the config, its overrides `changes`, or its mesh on the slice, or if one process would get a
        slice of several hosts.
    """
    check_path(workdir)
    if not in_bucket(workdir) and Path("/runs") not in Path(workdir).parents:
        raise ValueError(
            f"--workdir {workdir} would lie on the pods' own disks and end with them; use "
            "/runs/DIR or gs://BUCKET/DIR"
        )
    permitted = [word for path in code_files for word in ("--own", path)]
    if mode in ("evaluate", "report"):
        if topology.num_hosts > 1:
            raise ValueError(
                f"--mode {mode} is one process a job, and {topology.name} has "
                f"{topology.num_hosts} hosts; use {topology.chip.name}:{topology.chip.shapes[0]}"
            )
        command = ["python", f"{mode}.py", workdir, *permitted]
        return [Job(job_name(workdir, mode), config_name, command)]
    from ropewalk.training.sweep import check_meshes  # late: it imports JAX

    config = find_config(config_name)
    if mode == "run":
        rows = [("", config_name, ["train.py"], [overrides.apply(config, changes)])]
    else:
        members = make_members(config, changes)
        rows = [
            (str(number), member.name, ["sweep.py", "--member", str(number)], [member.config])
            for number, member in enumerate(members)
        ]
        if mode == "sweep":
            names = "; ".join(member.name for member in members)
            rows = [("", names, ["sweep.py"], [member.config for member in members])]
    jobs = []
    for suffix, name, program, configs in rows:
        check_meshes(configs, topology.num_devices, topology.num_hosts)
        command = ["python", *program, config_name, "--workdir", workdir, *changes, *permitted]
        jobs.append(Job(job_name(workdir, suffix), name, command))
    return jobs


def main() -> int:
    """Run the command line; exit with status 2 after one line for a user's mistake."""
    parser = argument_parser(__doc__, overrides.SWEEP_HELP)
    add = parser.add_argument
    add(
        "--mode",
        choices=("members", "sweep", "run", "evaluate", "report"),
        default="members",
        help="members: a JobSet for each member of the sweep, each on a slice of its own\n"
        "sweep: one for all members, in one program on one slice (sweep.py)\n"
        "run: one for a single run (train.py)\n"
        "evaluate, report: the evaluation or report of the finished runs in DIR",
    )
    add("--topology", required=True, metavar="T", help="v5e:4x4, v5p:4x4x4 ...")
    add("--image", required=True, help="container image, repository in /ropewalk")
    add("--claim", default="runs", help="persistentVolumeClaim of /runs (%(default)s)")
    add("--spot", action="store_true", help="use spot nodes")
    add(
        "--restarts", type=at_least(0), default=100, help="maximum number of restarts (%(default)s)"
    )
    arguments = parser.parse_intermixed_args()
    with parser.refusing(ValueError):
        topology = find_slice(arguments.topology)
        jobs = make_jobs(
            *(arguments.mode, arguments.config, arguments.workdir, arguments.overrides),
            topology,
            [os.path.relpath(path) for path in allowed()],
        )
    cluster = {name: getattr(arguments, name) for name in ("image", "claim", "spot", "restarts")}
    if in_bucket(arguments.workdir):
        cluster["claim"] = ""
    for job in jobs:
        print("---", manifest(job, topology, **cluster), sep="\n", end="")
    return 0


if __name__ == "__main__":
    exit_with(main)
