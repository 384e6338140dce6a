"""The fields of a JobSet that manifests here may use, and their types.

From config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml of kubernetes-sigs/jobset (v0.10) and
Kubernetes' pods. A key in brackets is any name of a map; `!` marks a required field.
"""

from typing import Any

_TYPES = {"text": str, "number": int, "any": object}
_POD = "spec.replicatedJobs.template.spec.template.spec"
_FIELDS = f"""
apiVersion text
kind text
metadata any
spec.failurePolicy.maxRestarts number
spec.failurePolicy.rules.name! text
spec.failurePolicy.rules.action! text
spec.failurePolicy.rules.onJobFailureReasons text
spec.replicatedJobs.name! text
spec.replicatedJobs.replicas number
spec.replicatedJobs.template.spec.parallelism number
spec.replicatedJobs.template.spec.completions number
spec.replicatedJobs.template.spec.backoffLimit number
spec.replicatedJobs.template.spec.podFailurePolicy.rules.action! text
spec.replicatedJobs.template.spec.podFailurePolicy.rules.onExitCodes.containerName text
spec.replicatedJobs.template.spec.podFailurePolicy.rules.onExitCodes.operator! text
spec.replicatedJobs.template.spec.podFailurePolicy.rules.onExitCodes.values number
spec.replicatedJobs.template.spec.template.metadata any
{_POD}.restartPolicy text
{_POD}.terminationGracePeriodSeconds number
{_POD}.nodeSelector.[name] text
{_POD}.tolerations.key text
{_POD}.tolerations.operator text
{_POD}.tolerations.value text
{_POD}.tolerations.effect text
{_POD}.containers.name! text
{_POD}.containers.image text
{_POD}.containers.workingDir text
{_POD}.containers.command text
{_POD}.containers.env.name! text
{_POD}.containers.env.value text
{_POD}.containers.ports.containerPort! number
{_POD}.containers.ports.name text
{_POD}.containers.resources.limits.[name] any
{_POD}.containers.volumeMounts.name! text
{_POD}.containers.volumeMounts.mountPath! text
{_POD}.volumes.name! text
{_POD}.volumes.persistentVolumeClaim.claimName! text
"""


def _tree() -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, kind in (line.split(" ") for line in _FIELDS.split("\n") if line):
        *parts, last = path.split(".")
        node = root
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = _TYPES[kind]
    return root


def problems(value: Any, known: Any = None, where: str = "") -> list[str]:
    """Return the errors of a server that prunes no fields, one line each."""
    known = _tree() if known is None else known
    if isinstance(value, list):
        return [text for item in value for text in problems(item, known, where)]
    if isinstance(known, type):
        return [] if isinstance(value, known) else [f"{where}: {value!r} is no {known.__name__}"]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    required = [name[:-1] for name in known if name.endswith("!")]
    errors = [f"{where}.{name} is missing" for name in required if name not in value]
    for name, item in value.items():
        kind = next((known[x] for x in (name, f"{name}!", "[name]") if x in known), None)
        if kind is None:
            errors.append(f"{where}.{name} is unknown")
        else:
            errors += problems(item, kind, f"{where}.{name}")
    return errors
