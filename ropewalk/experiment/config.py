"""ExperimentConfig: the definition of a run, and its conversion to and from JSON."""

import contextlib
import dataclasses
import importlib
import os
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from ropewalk.data.config import MAX_CONTEXT, DataConfig
from ropewalk.model import rotary as rotary_lib
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary import Pattern
from ropewalk.utils.checks import SINGLE_MAX, Bounds, Count, Seed, Share, SinglePositive, check
from ropewalk.utils.manifest import digest
from ropewalk.utils.messages import counted, one_line, quoted

# A config.json may only name classes of these packages: reading one never runs other code.
PACKAGES = ("model", "data", "experiment")

# Fields of older config.json files, by class: fields that have another name now, and removed fields
# with the only value that is still read.
_RENAMED = {"model.config.ModelConfig": {"blind": "masked_distances"}}
_REMOVED = {"data.config.DataConfig": {"documents": 2}}
_DERIVED = {"model.config.ModelConfig": {"learned_frequencies": False}}  # of no identity

TRAINED = "trained"  # name of the variant that a run was trained with

Steps = Annotated[int, Bounds(at_least=1, at_most=2**31 - 1)]  # counted in int32 on devices
Lengths = tuple[Annotated[int, Bounds(at_least=2, at_most=MAX_CONTEXT)], ...]  # tokens
NumDocuments = Annotated[int, Bounds(at_least=1, at_most=1_000_000)]  # of a task and length
# Adam divides by 1 - beta^t; closer to 1 that is 0 in float32.
Momentum = Annotated[float, Bounds(at_least=0, at_most=0.999999)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Fields of the optimization.

    Attributes:
      num_steps: optimizer updates.
      learning_rate: its peak.
      optimizer: "adamw", or "muon", which orthogonalizes the updates of the layers' matrices and
        leaves other parameters to AdamW with Nesterov's momentum. Updates have the size of AdamW's
        (2502.16982), so that both take the same learning rates. It adds 3 to 5 times
        model.embed_dim over the tokens of a step to the step's FLOPs.
      schedule: after the warmup, "cosine" falls to final_fraction, "constant" stays, "wsd" stays
        and falls linearly over the last decay_fraction of the steps.
      warmup_steps: steps of linear warmup from 0; at most num_steps.
      final_fraction: last learning rate as a share of the peak (cosine, wsd).
      decay_fraction: share of the steps over which wsd decays.
      weight_decay: decoupled (AdamW), on matrices only: not on norms.
      beta1, beta2, epsilon: AdamW's. Muon's momentum is 0.95.
      clip_norm: global gradient norm above which gradients are scaled down.
      frozen: parameters that keep their values: parts of their dotted paths, for example
        "embedding", "attention.key", or "blocks".
      max_skipped: updates in a row skipped because loss or gradient was not finite, from which on
        the state holds still: a lone run stops, a member of a sweep is frozen.
      accumulate: microbatches per step; divides the batch size.
      log_every: steps between rows of metrics.jsonl.
      save_every: steps between checkpoints; one is always saved at the end.
      keep: checkpoints kept, newest first.
      eval_every: steps between losses on held-out rows, `val_loss` in metrics.jsonl (also taken at
        a stage's end); 0 for none. See `training.validation`.
      stop_after: losses on held-out rows in a row, none of them lower than the lowest before, after
        which a stage ends early; 0: never.
      keep_best: whether the checkpoint with the lowest such loss of each stage is kept too; each
        time that it falls, a checkpoint is saved.
      eval_tasks: files of `evals/tasks/` asked then too, `val_TASK` in metrics.jsonl, at the
        config's `evals.lengths` and with its `evals.documents`.
      profile_steps: the first and the last step of a profile, written under the run directory's
        profile/ (a sweep's under its first member's), for XProf or TensorBoard; empty for none.
      tracking: dashboards that also get the metrics, and the results of `evaluate.py`:
        "tensorboard" and "wandb" under the run directory, wandb also online if WANDB_API_KEY or
        WANDB_MODE=online is set.
    """

    num_steps: Steps
    learning_rate: SinglePositive
    optimizer: Literal["adamw", "muon"] = "adamw"
    schedule: Literal["cosine", "constant", "wsd"] = "cosine"
    warmup_steps: Annotated[int, Bounds(at_least=0)] = 0
    final_fraction: Share = 0.1
    decay_fraction: Share = 0.2
    weight_decay: Annotated[float, Bounds(at_least=0, at_most=SINGLE_MAX)] = 0.1
    beta1: Momentum = 0.9
    beta2: Momentum = 0.95
    epsilon: SinglePositive = 1e-8
    clip_norm: SinglePositive = 1.0
    frozen: tuple[str, ...] = ()
    max_skipped: Steps = 100
    accumulate: Count = 1
    log_every: Count = 10
    save_every: Count = 1000
    keep: Count = 2
    tracking: tuple[Literal["tensorboard", "wandb"], ...] = ()
    eval_every: Annotated[int, Bounds(at_least=0)] = 0
    stop_after: Annotated[int, Bounds(at_least=0)] = 0
    keep_best: bool = False
    eval_tasks: tuple[str, ...] = ()
    profile_steps: tuple[Count, ...] = ()

    def __post_init__(self):
        check(self)
        steps = self.profile_steps
        if steps and (len(steps) != 2 or steps[0] > steps[1]):
            raise ValueError(
                f"profile_steps={quoted(steps)} must be the first and the last step, or none"
            )
        for name in ("eval_tasks", "stop_after", "keep_best"):
            if (value := getattr(self, name)) and not self.eval_every:
                raise ValueError(f"{name}={value} needs eval_every=STEPS")
        # A short trial of a config gives num_steps only; `training.plan` notes it.
        object.__setattr__(self, "warmup_steps", min(self.warmup_steps, self.num_steps))


def is_frozen(path: str, train: TrainConfig) -> bool:
    """Return whether the parameter with this dotted path keeps its value."""
    return any(f".{name}." in f".{path}." for name in train.frozen)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Numbers of devices along each axis; one axis may be -1, the rest of the devices.

    Attributes:
      sweep: members of a sweep.
      data: rows of the batch; parameters are copied.
      fsdp: rows of the batch; parameters and optimizer state are split.
      sequence: tokens of a row; keys and values travel (ring attention).
      tensor: heads, MLP width and vocabulary.
    """

    sweep: int = 1
    data: int = -1
    fsdp: int = 1
    sequence: int = 1
    tensor: int = 1

    def __post_init__(self):
        check(self)
        sizes = dataclasses.astuple(self)
        if any(size < 1 and size != -1 for size in sizes) or sizes.count(-1) > 1:
            raise ValueError(f"mesh axes must be at least 1, at most one of them -1, got {self}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Defaults of `evaluate.py`.

    Attributes:
      tasks: files of `evals/tasks/` and `data/tasks/`, with their fields.
      lengths: context lengths in tokens; empty means the trained length.
      documents: documents per task and length.
      seed: of the evaluation documents, which never occur in training.
    """

    tasks: tuple[str, ...] = ("kv", "lagcopy", "lines", "perplexity")
    lengths: Lengths = ()
    documents: NumDocuments = 64
    seed: Seed = 0

    def __post_init__(self):
        check(self)

    def describe(self, trained_length: int) -> str:
        """Return a line with the tasks, lengths and documents."""
        lengths = ", ".join(map(str, self.lengths or (trained_length,)))
        documents = counted(self.documents, "documents")
        return f"evaluation: {', '.join(self.tasks)}; {lengths} tokens; {documents}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """One run. `configs/` holds these; an ablation is a `dataclasses.replace`.

    Attributes:
      name: what the run is called.
      question: one line: what this experiment asks.
      seed: of the initialization. As an override it is the data's too, unless data.seed is given.
      members: what `sweep.py` runs when its command line lists no values: the overrides of each
        member.
      start_from: a run directory, or DIR@STEP, whose parameters the run starts from (the newest
        checkpoint's, or that step's); None: fresh ones. As an override it also brings that run's
        `model` and tokenizer (`experiment.inherit`). All else is this run's own: it counts from
        step 0 with its own warmup and optimizer state.
      stages: how the run goes on after this config's own steps: the overrides of each further
        stage, on top of the stage before. See `experiment.stages`.
    """

    name: str
    question: str
    seed: Seed = 0
    members: tuple[tuple[str, ...], ...] = ()
    start_from: str | None = None
    stages: tuple[tuple[str, ...], ...] = ()
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    mesh: MeshConfig = MeshConfig()
    evals: EvalConfig = EvalConfig()

    def __post_init__(self):
        check(self)
        if self.data.batch_size % self.train.accumulate:
            raise ValueError(
                f"train.accumulate={self.train.accumulate} must divide "
                f"data.batch_size={self.data.batch_size}"
            )
        if self.data.tokenizer is None and self.data.vocab_size > self.model.vocab_size:
            raise ValueError(
                f"data.vocab_size={self.data.vocab_size} exceeds "
                f"model.vocab_size={self.model.vocab_size}; raise the latter"
            )


def chosen_rotary(text: str, config: ExperimentConfig) -> Pattern:
    """Parse a variant; the trained one, also called "trained", gives missing parameters.

    Raises:
      ValueError: for an unknown variant or parameter, or one that the model's heads do not fit.
    """
    trained = config.model.rotary
    if text == TRAINED:
        return trained
    inherited = rotary_lib.inherited_parameters(trained, config.data.context_length)
    variant = rotary_lib.parse_pattern(text, inherited)
    return dataclasses.replace(config.model, rotary=variant).rotary


def to_dict(value: Any, values_of: Callable[[Any], dict[str, Any]] | None = None) -> Any:
    """Convert a config to JSON values; each dataclass states its import path as "class".

    `values_of` returns the fields to state of a dataclass; None: all that may be set.
    """
    if dataclasses.is_dataclass(value):
        values = (
            values_of(value)
            if values_of
            else {field.name: getattr(value, field.name) for field in stored_fields(type(value))}
        )
        fields = {name: to_dict(item, values_of) for name, item in values.items()}
        return {"class": class_path(type(value)), **fields}
    if isinstance(value, tuple):
        return [to_dict(item, values_of) for item in value]
    return value


def class_path(cls: type) -> str:
    """Return the path that files give a class: its module in this package, and its name."""
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("ropewalk.")


def stored_fields(cls: Any) -> list[dataclasses.Field]:
    """Return the fields of a config class that may be set; others are derived from them."""
    return [field for field in dataclasses.fields(cls) if field.init]


def from_dict(value: Any) -> Any:
    """Return the config of JSON values, the inverse of `to_dict`; missing fields have defaults.

    Raises:
      ValueError: if the JSON names a class outside this repository's packages, one that does not
        exist, or fields it does not have.
    """
    if isinstance(value, list):
        return tuple(from_dict(item) for item in value)
    if not isinstance(value, dict):
        return value
    path = str(value.get("class", ""))
    # The path says where the class is, so that no registry has to know all variants.
    module_name, _, class_name = path.rpartition(".")
    cls: Any = None
    if module_name.split(".")[0] in PACKAGES:
        with contextlib.suppress(ImportError, AttributeError):
            cls = getattr(importlib.import_module(f"ropewalk.{module_name}"), class_name)
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise ValueError(
            f"config names {quoted(path)}, which is no config class of this ropewalk; put its file "
            "back, or use the version of ropewalk that the run was made with"
        )
    renamed = _RENAMED.get(path, {})
    names = {name: renamed.get(name, name) for name in map(str, value) if name != "class"}
    fields = {new: from_dict(value[old]) for old, new in names.items()}
    for name, only in (_REMOVED.get(path, {}) | _DERIVED.get(path, {})).items():
        if fields.get(name) == only:
            del fields[name]
    if cls is TrainConfig and fields.get("tracking"):  # a removed tracker changes no number
        fields["tracking"] = tuple(name for name in fields["tracking"] if name != "trackio")
    for field in dataclasses.fields(cls):
        if not field.init:
            fields.pop(field.name, None)  # older files contain derived fields
    unknown = set(fields) - {field.name for field in stored_fields(cls)}
    if unknown:
        name = min(unknown)
        raise ValueError(
            f"{path} has {one_line(name, 60)}={quoted(fields[name])}, which this version does not "
            "read; use the version of ropewalk that the run was made with"
        )
    return cls(**fields)


# Fields whose values are paths: what lies there counts, not where it is.
PATH_FIELDS = ("start_from", "data.path", "data.tokenizer")

# Fields that may differ when a run is resumed: they do not change its numbers.
_OPERATIONAL = re.compile(
    r"(name|question|members|mesh|evals"
    r"|train\.(log_every|save_every|keep|keep_best|tracking|eval_every|eval_tasks|profile_steps)"
    r"|data\.(num_workers|prepared_root|on_bad_document))(\.|$)"
)


def first_difference(
    config: ExperimentConfig, other: ExperimentConfig
) -> tuple[str, Any, Any] | None:
    """Return the first field that decides numbers and differs between two runs, and its values."""
    # Compare fields, not files: fields that were added later have their defaults.
    ours, theirs = deciding_fields(config), deciding_fields(other)
    for name in {**theirs, **ours}:
        values = ours.get(name), theirs.get(name)
        if name in PATH_FIELDS and all(values):  # `text`, `./text/` and `/home/me/text` are one
            values = tuple(os.path.abspath(str(value)) for value in values)
        if values[0] != values[1]:
            return name, ours.get(name), theirs.get(name)
    return None


def deciding_fields(config: ExperimentConfig) -> dict[str, Any]:
    """Return the fields that decide the numbers of a run, by dotted name."""
    fields = flatten(to_dict(config))
    deciding = {name: value for name, value in fields.items() if not is_operational(name)}
    # Where a run stops early follows from the steps at which it is evaluated.
    return deciding | ({_EVAL_EVERY: fields[_EVAL_EVERY]} if config.train.stop_after else {})


_EVAL_EVERY = "train.eval_every"


def is_operational(name: str) -> bool:
    """Return whether a dotted field of a config does not change the numbers of a run."""
    return bool(_OPERATIONAL.match(name))


def config_digest(config: ExperimentConfig, tokenizer_sha256: str | None) -> str:
    """Return the part of a run's identity (`experiment.identity`) that config.json decides."""
    fields = flatten(to_dict(config, _without_defaults))
    # The digests of parameters and the tokenizer's sha256 stand for what lies at paths.
    fields = {k: x for k, x in fields.items() if not is_operational(k) and k not in PATH_FIELDS}
    return digest([fields, tokenizer_sha256])[:12]


# Defaults that a later version has changed, by field.
_FIRST_DEFAULTS = {"compute_dtype": "float32"}


def _without_defaults(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, but those that mean the same when config.json lacks them.

    So a field that a later version adds changes no identity.
    """
    values = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    defaults = {field.name: field.default for field in dataclasses.fields(value)} | _FIRST_DEFAULTS
    changed = {name: item for name, item in values.items() if item != defaults[name]}
    return _REMOVED.get(class_path(type(value)), {}) | changed


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dicts as one dict with dotted names."""
    flat = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
