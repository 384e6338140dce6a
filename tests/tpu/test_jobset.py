"""Manifests, read by a YAML parser."""

import re

import pytest
import yaml

from ropewalk.tpu import jobset
from ropewalk.tpu.topology import find_slice
from ropewalk.utils.errors import RESTART_STATUS

VARIANT = "model.rotary=yarn(base=1e4,factor=8,original_context_length=64)"


def read(name="ropewalk-x", member="base=1", command=("python",), topology="v5p:4x4x4", **changes):
    settings = {"image": "i", "claim": "runs", "spot": False, "restarts": 3} | changes
    job = jobset.Job(name, member, list(command))
    return yaml.safe_load(jobset.manifest(job, find_slice(topology), **settings))


def read_slice(**changes):
    return read(**changes)["spec"]["replicatedJobs"][0]["template"]["spec"]


def test_a_slice_has_a_pod_on_every_host():
    """v5p 4x4x4: 64 chips, four to a machine of type ct5p-hightpu-4t."""
    job = read()
    assert (job["apiVersion"], job["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert job["metadata"]["annotations"] == {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
        "ropewalk/member": "base=1",
    }
    assert job["spec"]["failurePolicy"]["maxRestarts"] == 3
    (slice_,), spec = job["spec"]["replicatedJobs"], read_slice()
    assert (slice_["replicas"], spec["parallelism"], spec["completions"]) == (1, 16, 16)
    pod = spec["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "4x4x4",
    }
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"google.com/tpu": 4}}
    assert container["volumeMounts"] == [{"name": "runs", "mountPath": "/runs"}]
    assert pod["volumes"] == [{"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}]


def test_restarts_only_where_they_may_help():
    """Exit statuses 42 and 127 to 255 restart, as in xpk's JobSets; others end the JobSet.

    2 is a user's mistake, 1 a diverged run.
    """
    job = read()
    assert job["spec"]["failurePolicy"]["rules"] == [
        {"name": "refused", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    ]
    spec = read_slice()
    (container,) = spec["template"]["spec"]["containers"]
    codes = {"containerName": container["name"], "operator": "NotIn"}
    codes |= {"values": sorted([RESTART_STATUS, *range(127, 256)])}
    assert spec["podFailurePolicy"]["rules"] == [{"action": "FailJob", "onExitCodes": codes}]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # which Kubernetes requires here


def test_a_spot_chip_whose_run_is_in_a_bucket():
    spec = read_slice(topology="v6e:1x1", spot=True, claim="")
    pod = spec["template"]["spec"]
    assert pod["volumes"] == pod["containers"][0]["volumeMounts"] == []
    assert spec["parallelism"] == 1
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert pod["containers"][0]["resources"]["limits"]["google.com/tpu"] == 1


@pytest.mark.parametrize("word", [VARIANT, """it's "no": # c""", "é\n$HOME", "1e4"])
def test_any_word_stays_one_word(word):
    pod = read_slice(command=["python", word])["template"]["spec"]
    assert pod["containers"][0]["command"] == ["python", word]
    assert read(member=word)["metadata"]["annotations"]["ropewalk/member"] == word


def test_a_job_for_each_member_or_one_for_all():
    changes, chips = [f"{VARIANT},nope", "train.num_steps=7"], find_slice("v5e:2x4")
    arguments = ["tiny", "--workdir", "/runs/My Sweep", *changes]
    name, python = "ropewalk-my-sweep", ["python", "sweep.py"]
    members = VARIANT.removeprefix("model."), "rotary=nope"
    assert jobset.make_jobs("members", "tiny", "/runs/My Sweep", changes, chips) == [
        (f"{name}-{i}", member, [*python, "--member", str(i), *arguments])
        for i, member in enumerate(members)
    ]
    ((*_, command),) = jobset.make_jobs("sweep", "tiny", "/runs/My Sweep", changes, chips)
    assert command == [*python, *arguments]
    ((*_, command),) = jobset.make_jobs("run", "tiny", "/runs/a", ["seed=1"], chips)
    assert command == ["python", "train.py", "tiny", "--workdir", "/runs/a", "seed=1"]
    jobset.make_jobs("run", "tiny", "/runs/a", ["mesh.data=8"], find_slice("tpu7x:2x2x1"))


@pytest.mark.parametrize("workdir", ["/runs/base=10,seed=(1)", "/runs/" + "X_" * 99, "/"])
def test_names_are_dns_labels_with_room_for_the_pods(workdir):
    for suffix in ("1234", "evaluate"):
        name = jobset.job_name(workdir, suffix)
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 63 - len("-slice-0-999-abcde")
