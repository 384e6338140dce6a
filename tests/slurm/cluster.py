"""A SLURM cluster of two nodes on this machine, from Debian's packages."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.training.helpers import free_port

DAEMONS = ("munged", "slurmctld", "slurmd")
# The names of the nodes are addresses, so that nothing must resolve them.
NODES = ("127.0.0.1", "127.0.0.2")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

# Each node claims 64 CPUs and eight GPUs, as submit.sh requests them; JAX uses the CPU.
CONFIG = """\
ClusterName=ropewalk
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ctld_port}
FirstJobId={first_job}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 Gres=gpu:8"


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in (*DAEMONS, "sbatch", "srun") if not shutil.which(name, path=PATH)]


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} seconds: {what}"
        time.sleep(0.2)


class Cluster:
    """The daemons, as children of this process until `stop` is called."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.folder = folder
        self.environment = {
            **{k: v for k, v in environment.items() if not k.startswith("SLURM_")},
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": PATH,
            "JAX_PLATFORMS": "cpu",
        }
        host = socket.gethostname().partition(".")[0]
        nodes = [NODE.format(name=name, host=host, port=free_port()) for name in NODES]
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        # JAX derives the coordinator's port from the first job's number; it must be free.
        text = CONFIG.format(
            host=host, user=getpass.getuser(), folder=folder, ctld_port=free_port(),
            first_job=1 + secrets.randbelow(4000), nodes="\n".join(nodes),
        )  # fmt: skip
        (folder / "slurm.conf").write_text(text)
        for gpu in range(8):
            (folder / f"gpu{gpu}").touch()
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-7]\n")
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        self._running: list[subprocess.Popen] = []

    def start(self) -> None:
        munge = [f"--{kind}-file={self.folder}/munge.{kind}" for kind in ("key", "pid", "log")]
        munge += [f"--seed-file={self.folder}/munge.seed", "--foreground", "--force"]
        self._daemon("munged", *munge, f"--socket={self.folder}/munge.socket")
        wait_for((self.folder / "munge.socket").exists, 20, "munged's socket")
        self._daemon("slurmctld", "-D")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        idle = ["idle"] * len(NODES)
        wait_for(lambda: self.ask("sinfo", "-hNo", "%T").split() == idle, 60, "idle nodes")

    def _daemon(self, *command: str) -> None:
        with (self.folder / f"{command[0]}-{len(self._running)}.out").open("w") as out:
            self._running.append(
                subprocess.Popen(command, env=self.environment, stdout=out, stderr=out)
            )

    def stop(self) -> None:
        """End all jobs, then the daemons."""
        try:
            if len(self._running) > 1:
                self.ask("scancel", "--user", getpass.getuser())
                wait_for(lambda: not self.jobs(), 60, "the end of all jobs")
        finally:
            for daemon in reversed(self._running):
                daemon.terminate()
                try:
                    daemon.wait(20)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()

    def ask(self, *command: str) -> str:
        """Return the standard output of a SLURM command; empty if it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    def jobs(self) -> list[str]:
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def submit(self, *arguments: object) -> str:
        """Submit a job by slurm/submit.sh and return its number."""
        command = [Path(__file__).parents[2] / "ropewalk/tpu/slurm/submit.sh", *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def shown(self, job: str) -> dict[str, str]:
        """Return the fields that scontrol shows for a job."""
        text = self.ask("scontrol", "show", "job", "--oneliner", job)
        fields = [field.partition("=") for field in text.split()]
        return {key: value for key, _, value in fields}

    def state(self, job: str) -> str:
        return self.shown(job).get("JobState", "")

    def wait(self, job: str, seconds: float = 600) -> str:
        """Wait for the end of a job and return its state."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        wait_for(lambda: self.state(job) in over, seconds, f"the end of job {job}")
        return self.state(job)
