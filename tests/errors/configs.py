"""Configs that cannot be: overrides, stages, sizes, meshes."""

import dataclasses

from configs import changes, find_config
from experiment import overrides, stages
from experiment.config import MeshConfig, from_dict, to_dict
from experiment.mesh import mesh_sizes
from model import kernels, transformer
from model.kernels import choice, xla
from model.rotary.nope import Nope
from tests.errors.table import Row

TINY = find_config("tiny")
MLA = find_config("mla_tiny")
MESH = changes.change(
    TINY,
    model=dict(num_heads=12, num_kv_heads=6, vocab_size=64, mlp_dim=24),
    data=dict(context_length=48, vocab_size=64),
)


def applied(override: str, says: str, config=TINY) -> Row:
    """A row of an override; the commands that take overrides have some of these too."""
    return Row(lambda: overrides.apply(config, [override]), says)


def staged(override: str, says: str) -> Row:
    """A row of an override in a second stage."""
    config = dataclasses.replace(TINY, stages=(("train.num_steps=10",), (override,)))
    return Row(lambda: stages.split(config), says)


def laid_out(num_devices: int, num_members: int, says: str, **mesh: int) -> Row:
    """A row of a mesh."""
    config = dataclasses.replace(MESH, mesh=MeshConfig(**mesh))
    return Row(lambda: mesh_sizes(config, num_members, num_devices), says)


def written(says: str, **record) -> Row:
    """A row of a config's record whose rotary variant is changed."""

    def read():
        fields = to_dict(TINY)
        fields["model"]["rotary"] |= record
        return from_dict(fields)

    return Row(read, says)


attention = xla.attention


def leaking(q_BTNH, k_BTKH, v_BTKU, ids_BT, window):
    """Attention over all documents of a row."""
    return attention(q_BTNH, k_BTKH, v_BTKU, 0 * ids_BT, window)


def broken(*arguments):
    """Fail as a function that JAX no longer has."""
    raise AttributeError("no attribute '_bwd_dq'\nwith a second line")


ROWS = [
    Row(
        "train.py tiny --workdir new model.rotary.bse=3",
        "unknown field 'model.rotary.bse'; did you mean 'base'? (valid: base, log_n, "
        "rotary_fraction)",
    ),
    Row(
        "train.py tiny --workdir new model.rotary=rope",
        "model.rotary: rope needs base: write rope(base=...)",
    ),
    Row(
        "train.py tiny --workdir new train.num_steps",
        "override 'train.num_steps' is not of the form dotted.field=value",
    ),
    Row(
        "sweep.py tiny --workdir new model.rotary.base=1,10",
        "model.rotary: base must be a finite number above 1, got 1.0",
    ),
    applied(
        "modle.rotary.base=3",
        "unknown field 'modle'; did you mean 'model'? (valid: data, evals, members, mesh, "
        "model, name, question, seed, stages, start_from, train)",
    ),
    applied(
        "model.rotary=rop(base=3)",
        "model.rotary: unknown rotary variant 'rop'; did you mean 'rope'? (valid: {})",
    ),
    applied("model.rotary.base=0.5", "model.rotary: base must be a finite number above 1, got 0.5"),
    applied("data.documents=3", "data.documents=3 must be one of its words, got 3; (valid: 1, 2)"),
    applied(
        "data.source=jsnl",
        "data.source=jsnl must be one of its words, got 'jsnl'; did you mean 'jsonl'? "
        "(valid: jsonl, local, redpajama, retrieval)",
    ),
    applied("data.source=jsonl", "data: data.source=jsonl needs data.path=FILE_OR_FOLDER"),
    applied(
        "data.path=s3://bucket/text",
        "data: s3://bucket/text cannot be read or written: of addresses, gs:// alone can; use "
        "that, a folder of this machine, or one where the bucket is mounted",
    ),
    applied("data.retrieval_tasks=[]", "data: retrieval_tasks must be some of kv, lagcopy, lines"),
    applied(
        "data.retrieval_tasks=[kw]",
        "data: unknown retrieval task 'kw'; did you mean 'kv'? (valid: kv, lagcopy, lines)",
    ),
    applied("data.batch_size=0", "data: batch_size must be a whole number in [1, 16777216], got 0"),
    applied(
        "data.context_length=0",
        "data: context_length must be a whole number in [1, 16777216], got 0",
    ),
    applied(
        "data.on_bad_document=skp",
        "data.on_bad_document=skp must be one of its words, got 'skp'; did you mean 'skip'? "
        "(valid: error, skip)",
    ),
    applied(
        "data.vocab_size=1024",
        "config: data.vocab_size=1024 exceeds model.vocab_size=512; raise the latter",
    ),
    applied("train.num_steps=1.5", "train.num_steps=1.5 must be a whole number, got 1.5"),
    applied("train.num_steps=many", "train.num_steps=many must be a whole number, got 'many'"),
    applied("train.accumulate=3", "config: train.accumulate=3 must divide data.batch_size=8"),
    applied(
        "train.schedule=cosin",
        "train.schedule=cosin must be one of its words, got 'cosin'; did you mean 'cosine'? "
        "(valid: constant, cosine, wsd)",
    ),
    applied(
        "train.learning_rate=0",
        "train: learning_rate must be a finite number in [1.2e-38, 3.4e+38], got 0.0",
    ),
    applied("train.warmup_steps=21", "train: warmup_steps=21 must lie in [0, num_steps=20]"),
    applied(
        "train.profile_steps=[3,2]",
        "train: profile_steps=(3, 2) must be the first and the last step, or none",
    ),
    applied("train.eval_tasks=[kv]", "train: eval_tasks=('kv',) need eval_every=STEPS"),
    applied(
        "mesh.data=0",
        "mesh: mesh axes must be at least 1, at most one of them -1, got MeshConfig(sweep=1, "
        "data=0, fsdp=1, sequence=1, tensor=1)",
    ),
    applied("mesh.data=0.5", "mesh.data=0.5 must be a whole number, got 0.5"),
    applied("model=3", "model is an object; set one of its fields: model.FIELD=VALUE"),
    applied(
        "model.vocab_size.x=3",
        "model.vocab_size has no fields of its own; write model.vocab_size=VALUE",
    ),
    applied("model.qk_norm=1", "model.qk_norm=1 must be True or False, got 1"),
    applied(
        "model.attention=flash",
        "model.attention=flash must be one of its words, got 'flash'; did you mean 'xla'? "
        "(valid: auto, xla)",
    ),
    applied(
        "model.compute_dtype=float16",
        "model.compute_dtype=float16 must be one of its words, got 'float16'; did you mean "
        "'bfloat16'? (valid: bfloat16, float32)",
    ),
    applied(
        "model.remat=some",
        "model.remat=some must be one of its words, got 'some'; did you mean 'none'? (valid: "
        "dots, full, none, offload, offload_qkv, qkv)",
    ),
    applied("model.num_kv_heads=3", "model: num_heads=2 must be a multiple of num_kv_heads=3"),
    applied("model.num_layers=0", "model: num_layers must be a whole number in [1, 10000], got 0"),
    applied("model.head_dim=7", "model: head_dim must be even and positive, got 7"),
    applied("model.loss_chunk=0", "model: loss_chunk must be a whole number of at least 1, got 0"),
    applied("model.window=0", "model: window must be a whole number of at least 1, got 0"),
    applied("model.window=[8,0]", "model: window must be a whole number of at least 1, got (8, 0)"),
    applied("model.window=[8,x]", "model.window=x must be a whole number, got 'x'"),
    applied(
        "model.masked_distances=[3,4]",
        "model: masked_distances needs num_layers=1, got 2: two layers could relay masked tokens",
    ),
    applied("model.rotary=[nope,nope,nope]", "model: a pattern of 3 does not fit num_layers=2"),
    applied("model.rotary=[]", "model: a pattern of 0 does not fit num_layers=2"),
    applied("model.rotary=[nope", "model.rotary: '[nope' lacks its closing ']'"),
    applied("model.rotary=[[nope,nope,nope]]", "model: a pattern of 3 does not fit num_kv_heads=1"),
    Row(
        lambda: overrides.apply(TINY, ["model.rotary=nope", "model.rotary.base=3"]),
        "unknown field 'model.rotary.base'; (valid: log_n, rotary_fraction)",
    ),
    Row(
        lambda: changes.change(TINY, train=dict(num_steps=0)),
        "num_steps must be a whole number in [1, 2147483647], got 0",
    ),
    Row(
        lambda: changes.change(TINY, model=dict(rotary=((Nope(),) * 3,))),
        "a pattern of 3 does not fit num_kv_heads=1",
    ),
    Row(
        lambda: changes.change(TINY, model=dict(num_layers=1, masked_distances=(5, 4))),
        "masked_distances=(5, 4) must be the first and the last distance",
    ),
    Row(
        lambda: changes.change(TINY, model=dict(num_layers=1, masked_distances=(5,))),
        "masked_distances must be 2 values, got (5,)",
    ),
    Row(
        lambda: changes.change(TINY, model=dict(num_layers=1, masked_distances=(0, 4))),
        "masked_distances must be a whole number of at least 1, got 0",
    ),
    applied("model.head_dim=8", "model: with mla, head_dim must be 24, got 8", MLA),
    applied("model.num_kv_heads=1", "model: with mla, num_kv_heads must be 2, got 1", MLA),
    applied("model.qk_norm=true", "model: mla has no qk_norm; set model.qk_norm=false", MLA),
    applied("model.qkv_bias=true", "model: mla has no qkv_bias; set model.qkv_bias=false", MLA),
    applied(
        "model.mla.kv_lora_rank=0",
        "model.mla: kv_lora_rank must be a whole number of at least 1, got 0",
        MLA,
    ),
    Row(
        lambda: changes.change(MLA, model=dict(align_query_key=True, mla=dict(q_lora_rank=4))),
        "with mla, align_query_key needs queries without a latent of their own; set "
        "model.mla.q_lora_rank=none",
    ),
    applied(
        "model.rotary=[[rope(base=10),rope(base=100)]]",
        "model: mla rotates one key for all heads; rotary cannot differ by head",
        MLA,
    ),
    staged(
        "model.rotary.bse=3",
        "stage 2: unknown field 'model.rotary.bse'; did you mean 'base'? (valid: base, "
        "log_n, rotary_fraction)",
    ),
    staged(
        "model.rotary=mine.py:Bent",
        "stage 2: model.rotary=mine.py:Bent: a stage takes nothing from a file of your own",
    ),
    staged(
        "train.warmup_steps=11", "stage 2: train: warmup_steps=11 must lie in [0, num_steps=10]"
    ),
    staged(
        "data.batch_size=0",
        "stage 2: data: batch_size must be a whole number in [1, 16777216], got 0",
    ),
    staged(
        "seed=1", "stage 2: seed cannot change between stages; (valid: data, evals, model, train)"
    ),
    staged(
        "mesh.data=2",
        "stage 2: mesh.data cannot change between stages; did you mean 'model'? (valid: "
        "data, evals, model, train)",
    ),
    staged(
        "start_from=runs/a",
        "stage 2: start_from cannot change between stages; (valid: data, evals, model, train)",
    ),
    staged(
        "stages=[[seed=1]]",
        "stage 2: stages cannot change between stages; did you mean 'data'? (valid: data, "
        "evals, model, train)",
    ),
    staged(
        "modle.rotary.base=3",
        "stage 2: modle.rotary.base cannot change between stages; did you mean 'model'? "
        "(valid: data, evals, model, train)",
    ),
    staged("train.keep=5", "stage 2: train.keep is the whole run's; set it in the config itself"),
    laid_out(
        12,
        1,
        "mesh.tensor=4 does not divide model.num_kv_heads=6; use 3, or change model.num_kv_heads",
        tensor=4,
    ),
    laid_out(
        12,
        1,
        "mesh.data x mesh.fsdp=12 does not divide rows of a microbatch=8; use 8, or change "
        "rows of a microbatch",
    ),
    laid_out(
        8,
        6,
        "mesh.sweep=4 does not divide members of the sweep=6; use 3, or change members of "
        "the sweep",
        sweep=4,
        data=2,
    ),
    laid_out(
        8,
        1,
        "mesh {'sweep': 1, 'data': -1, 'fsdp': 1, 'sequence': 1, 'tensor': 3} does not cover "
        "the 8 devices; use mesh.tensor=2, or leave one axis at -1 to take the rest",
        tensor=3,
    ),
    laid_out(
        8,
        1,
        "mesh {'sweep': 1, 'data': 2, 'fsdp': 1, 'sequence': 2, 'tensor': 1} does not cover "
        "the 8 devices; use mesh.data=4, or leave one axis at -1 to take the rest",
        data=2,
        sequence=2,
    ),
    written(
        "config names the class 'os.system', which is not one of this repository's",
        **{"class": "os.system"},
    ),
    written(
        "config names the class 'subprocess.Popen', which is not one of this repository's",
        **{"class": "subprocess.Popen"},
    ),
    written(
        "config names the class 'model.rotary.gone.Gone', and there is no model/rotary/gone.py "
        "here; put the file back, or use the version of ropewalk that the run was made with",
        **{"class": "model.rotary.gone.Gone"},
    ),
    written(
        "config names 'model.rotary.parse', which is not a config class",
        **{"class": "model.rotary.parse"},
    ),
    written("model.rotary.rope.Rope has no field 'theta' (a newer ropewalk's config?)", theta=3.0),
    *(
        Row(
            lambda head=head: transformer.without_heads(
                transformer.abstract_params(TINY.model), [head]
            ),
            f"no head {head[1]} in layer {head[0]}: layers are 0 to 1, heads 0 to 1",
        )
        for head in ((2, 0), (0, 8), (-1, 0))
    ),
    # A kernel in which documents leak, and one that JAX does not let run.
    Row(
        lambda: kernels.check(TINY.model, 2, 32),
        "attention kernel 'xla' is wrong on cpu: the output is off by 0.87 of its size "
        "(window 2147483647 of 32 tokens, float32); report it",
        given=lambda patch: patch.setattr(xla, "attention", leaking),
    ),
    Row(
        lambda: kernels.check(TINY.model, 2, 32),
        "attention kernel 'splash' refuses on tpu: AttributeError: no attribute '_bwd_dq'; "
        "set model.attention=xla, and report it",
        given=lambda patch: patch.setattr(
            choice, "choose", lambda *_: choice.Choice("splash", broken, "tpu")
        ),
    ),
]
