"""The fields of a JobSet that Kubernetes accepts, and their types.

`FIELDS` are those of jobset.x-k8s.io/v1alpha2 that manifests here may use, from
config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml of kubernetes-sigs/jobset (v0.10). If
$JOBSET_CRD is the path of that file, the tests also compare with it.
"""

import os
import re
from pathlib import Path
from typing import Any

import yaml


def _object(required: str = "", **properties: Any) -> dict:
    return {"type": "object", "properties": properties, "required": required.split()}


def _array(items: dict) -> dict:
    return {"type": "array", "items": items}


TEXT, NUMBER, ANY = {"type": "string"}, {"type": "integer"}, {"type": "any"}
_TEXTS = {"type": "object", "additionalProperties": TEXT}
_NAMED = _object("name", name=TEXT, value=TEXT)
_CONTAINER = _object(
    "name", name=TEXT, image=TEXT, workingDir=TEXT, command=_array(TEXT), args=_array(TEXT),
    env=_array(_NAMED), ports=_array(_object("containerPort", containerPort=NUMBER, name=TEXT)),
    resources=_object(limits={"type": "object", "additionalProperties": ANY}),
    volumeMounts=_array(_object("mountPath name", mountPath=TEXT, name=TEXT)),
)  # fmt: skip
_POD = _object(
    "containers",
    restartPolicy=TEXT,
    terminationGracePeriodSeconds=NUMBER,
    nodeSelector=_TEXTS,
    tolerations=_array(_object(key=TEXT, operator=TEXT, value=TEXT, effect=TEXT)),
    containers=_array(_CONTAINER),
    volumes=_array(
        _object("name", name=TEXT, persistentVolumeClaim=_object("claimName", claimName=TEXT))
    ),
)
_EXIT_CODES = _object("operator values", containerName=TEXT, operator=TEXT, values=_array(NUMBER))
_RULES = _array(_object("action", action=TEXT, onExitCodes=_EXIT_CODES))
_JOB = _object(
    "template", parallelism=NUMBER, completions=NUMBER, backoffLimit=NUMBER,
    podFailurePolicy=_object("rules", rules=_RULES), template=_object(metadata=ANY, spec=_POD),
)  # fmt: skip
FIELDS = _object(
    "",
    apiVersion=TEXT,
    kind=TEXT,
    metadata=ANY,
    spec=_object(
        "",
        failurePolicy=_object(
            "",
            maxRestarts=NUMBER,
            rules=_array(
                _object(
                    "action name",
                    name={**TEXT, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
                    action={
                        "type": "string",
                        "enum": [
                            "FailJobSet",
                            "RestartJobSet",
                            "RestartJobSetAndIgnoreMaxRestarts",
                        ],
                    },
                    onJobFailureReasons=_array(TEXT),
                    targetReplicatedJobs=_array(TEXT),
                )
            ),
        ),
        replicatedJobs=_array(
            _object("name template", name=TEXT, replicas=NUMBER, template=_object(spec=_JOB))
        ),
        suspend={"type": "boolean"},
        ttlSecondsAfterFinished=NUMBER,
    ),
)


def schemas() -> list[dict]:
    """Return the schemas with which manifests are compared."""
    path = os.environ.get("JOBSET_CRD")
    if not path:
        return [FIELDS]
    crd = yaml.safe_load(Path(path).read_text())
    (version,) = (v for v in crd["spec"]["versions"] if v["name"] == "v1alpha2")
    return [FIELDS, version["schema"]["openAPIV3Schema"]]


def problems(value: Any, schema: dict, where: str = "") -> list[str]:
    """Return the errors of a server that prunes no fields, one line each."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    kind = schema.get("type")
    if kind not in kinds:  # of any type, or an integer or a string
        return []
    if not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool)):
        return [f"{where}: {value!r} is no {kind}"]
    errors = []
    if "enum" in schema and value not in schema["enum"]:
        errors.append(f"{where}: {value!r} is none of {schema['enum']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        errors.append(f"{where}: {value!r} does not match {schema['pattern']}")
    if kind == "array":
        for index, item in enumerate(value):
            errors += problems(item, schema["items"], f"{where}[{index}]")
    if kind == "object":
        known, additional = schema.get("properties", {}), schema.get("additionalProperties")
        missing = [name for name in schema.get("required", ()) if name not in value]
        errors += [f"{where}.{name} is missing" for name in missing]
        for name, item in value.items():
            if name in known:
                errors += problems(item, known[name], f"{where}.{name}")
            elif isinstance(additional, dict):
                errors += problems(item, additional, f"{where}.{name}")
            elif known:
                errors.append(f"{where}.{name} is unknown")
    return errors
