"""Models that no class has, and folders that are no models: `python -m interop` refuses them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from experiment.run import RunDirectory
from experiment.streamed import StoredParams
from interop.architectures import choose
from interop.export import Options, export
from interop.importing import import_folder
from interop.rotary_config import Head, rope_parameters
from interop.tensors import Tensors
from model.config import ModelConfig
from model.rotary import parse, parse_pattern
from tests.errors.checkpoints import another_digest, done
from tests.errors.table import Row
from tests.interop.weights_helpers import MLA, PLAIN

V, D, F = 8, 4, 6
LLAMA = {
    "model_type": "llama",
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": F,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "max_position_embeddings": 16,
    "rope_theta": 100.0,
    "tie_word_embeddings": True,
}
LAYER = "model.layers.0."
SHAPES = {
    "model.embed_tokens.weight": (V, D),
    "model.norm.weight": (D,),
    f"{LAYER}input_layernorm.weight": (D,),
    f"{LAYER}post_attention_layernorm.weight": (D,),
    **{f"{LAYER}self_attn.{name}_proj.weight": (D, D) for name in "qkvo"},
    **{f"{LAYER}mlp.{name}_proj.weight": (F, D) for name in ("gate", "up")},
    f"{LAYER}mlp.down_proj.weight": (D, F),
}


def tensors(**changes: Any) -> dict[str, np.ndarray]:
    """Tensors of a whole folder; those changed to None are left out."""
    arrays = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    replacements = {key.replace("__", "."): value for key, value in changes.items()}
    return {name: value for name, value in (arrays | replacements).items() if value is not None}


WHOLE = save(tensors())
INDEX = "hf/model.safetensors.index.json"


def config(**changes: Any) -> str:
    """config.json, some keys changed or, with None, left out."""
    fields = {**LLAMA, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def folder(says: str, files: dict[str, Any] | None = None, **changes: Any) -> Row:
    """A row of a folder `hf` that is not imported."""
    contents = {"hf/config.json": config(**changes), "hf/model.safetensors": WHOLE}
    return Row(
        "-m interop import hf new",
        says,
        files={name: c for name, c in (contents | (files or {})).items() if c is not None},
    )


def held(says: str, **changes: Any) -> Row:
    """Likewise, with other tensors."""
    return folder(says, {"hf/model.safetensors": save(tensors(**changes))})


def refused(
    says: str, model: ModelConfig = PLAIN, wanted: str | None = None, **changes: Any
) -> Row:
    """A model that is not exported."""
    if "rotary" in changes:
        changes["rotary"] = parse_pattern(changes["rotary"])
    return Row(lambda: choose(dataclasses.replace(model, **changes), wanted), says)


def swapped() -> None:
    """A folder whose keys have as many norms as pairs, next to each other."""
    random, H, K = np.random.default_rng(0), 64, 16
    norms = np.repeat(np.exp(random.normal(size=(K, H // 2))), 2, axis=-1)
    key = norms.reshape(-1, 1) * random.choice([-1.0, 1.0], (K * H, D))
    shapes = {"k": key.astype(np.float32), **{n: np.ones((K * H, D), np.float32) for n in "qv"}}
    changes = {f"model__layers__0__self_attn__{n}_proj__weight": x for n, x in shapes.items()}
    changes["model__layers__0__self_attn__o_proj__weight"] = np.ones((D, K * H), np.float32)
    Path("hf").mkdir()
    Path("hf/model.safetensors").write_bytes(save(tensors(**changes)))
    Path("hf/config.json").write_text(config(num_attention_heads=K, head_dim=H))
    import_folder("hf", "new")


def not_the_same(patch) -> None:
    """Logits of ours as another model's."""
    patch.setattr("interop.check.our_logits", lambda *arguments: np.zeros(1))


def edited_read() -> None:
    another_digest()
    stored = StoredParams(RunDirectory("run"))
    for name in stored.known:
        stored.read(name)


def two_dtypes() -> None:
    """Two layers, one of them half as wide."""
    both = tensors()
    second = {n.replace(".0.", ".1."): x for n, x in both.items() if ".0." in n}
    name = "model.layers.1.input_layernorm.weight"
    second[name] = second[name].astype(np.float16)
    Path("hf").mkdir()
    Path("hf/model.safetensors").write_bytes(save(both | second))
    Path("hf/config.json").write_text(config(num_hidden_layers=2))
    import_folder("hf", "new")


def no_folder() -> None:
    Tensors("hf")


NOWHERE = "no class of transformers has "

ROWS = [
    refused(
        NOWHERE + "shifted keys (model.shift_keys); train with model.shift_keys=false",
        shift_keys=True,
    ),
    refused(
        NOWHERE + "masked distances (model.masked_distances); train without it",
        masked_distances=(1, 2),
        num_layers=1,
    ),
    refused(
        NOWHERE + "log-n scaling of queries (log_n); train without it",
        rotary="rope(base=50,log_n=train)",
    ),
    refused(
        NOWHERE + "frequencies of each row's own length (DynamicYarn); evaluate it here, or train "
        "with a static variant",
        rotary="dynamic_yarn(base=50,original_context_length=64)",
    ),
    refused(
        NOWHERE + "frequencies of each head's own (a rotary pattern over heads); train without it",
        rotary="[[rope(base=50),rope(base=60)]]",
    ),
    refused(
        "unknown architecture 'lama'; did you mean 'llama'? (valid: deepseek_v3, llama, mellum, "
        "ministral, mistral, phi3, qwen2, qwen3, smollm3)",
        wanted="lama",
    ),
    refused("llama does not have this model: it has model.qk_norm", wanted="llama", qk_norm=True),
    refused("qwen2 does not have this model: it lacks model.qkv_bias", wanted="qwen2"),
    refused("llama does not have this model: model.window", wanted="llama", window=3),
    refused(
        "mistral does not have this model: a window in some layers only",
        wanted="mistral",
        window=(3, None),
    ),
    refused(
        "phi3 does not have this model: head_dim=16 is not embed_dim / num_heads", wanted="phi3"
    ),
    refused(
        "no class of transformers has this model; llama is the nearest, but: windows of 2 sizes",
        window=(3, 4),
    ),
    refused(
        "no class of transformers has this model; llama is the nearest, but: rotation that differs "
        "by layer",
        rotary="[rope(base=50),rope(base=60)]",
    ),
    refused(
        "no class of transformers has this model; deepseek_v3 is the nearest, but: "
        "norm_epsilon=1e-05, and DeepSeek's norms of latents have 1e-06: train with "
        "model.norm_epsilon=1e-6",
        MLA,
        norm_epsilon=1e-5,
    ),
    Row(
        lambda: rope_parameters(parse("rope(base=50)"), Head(16, 64), rope_type="llama3"),
        "Rope is no rope_type 'llama3'; leave --rope-type out",
    ),
    Row(
        "-m interop export run .", ". is there already; delete it, or name another folder", run=True
    ),
    Row(
        "-m interop export run new",
        "at {} tokens the folder's logits differ from the run's by {} (root mean square), more "
        "than {}, which is allowed for a spread of {} and a rounding of {}: nothing was written; "
        "report it with the config.json",
        given=not_the_same,
        run=True,
    ),
    Row(
        edited_read,
        "run: checkpoint 2 is damaged (params.{} is not what was saved); take another step, or "
        "delete run/checkpoints/2",
        run=True,
    ),
    Row(
        lambda: export("run", "new", options=Options(rope_type="yarn")),
        "Rope is no rope_type 'yarn'; leave --rope-type out",
        run=True,
    ),
    Row("-m interop import hf .", ". is there already; delete it, or name another directory"),
    Row(
        "-m interop import hf new",
        "hf/config.json: No such file or directory; give a folder with a config.json",
    ),
    folder("hf/config.json: not JSON ({})", {"hf/config.json": "{"}),
    folder("hf/config.json is not a JSON object", {"hf/config.json": "[]"}),
    folder(
        "model_type 'lama' is not imported; did you mean 'llama'? (valid: deepseek_v2, "
        "deepseek_v3, llama, mellum, ministral, mistral, phi3, qwen2, qwen3, smollm3)",
        model_type="lama",
    ),
    folder("config.json lacks 'hidden_size'", hidden_size=None),
    folder(
        "config.json: vocab_size must be a whole number of at least 1, got 'many'",
        vocab_size="many",
    ),
    folder("hidden_act 'gelu' is not imported; only silu is", hidden_act="gelu"),
    folder(
        "a mixture of experts is not imported; only a config whose layers are all dense is",
        num_experts=8,
    ),
    folder(
        "attention_bias=True is not imported; no model of ours has it",
        attention_bias=True,
    ),
    folder(
        "quantization_config={'bits': 4} is not imported; no model of ours has it",
        quantization_config={"bits": 4},
    ),
    folder(
        "rms_norm_eps=1e-05, and this class's norms of latents have 1e-06: no model of ours has "
        "two",
        model_type="deepseek_v3",
        n_routed_experts=0,
        rms_norm_eps=1e-5,
        kv_lora_rank=2,
        qk_nope_head_dim=2,
        qk_rope_head_dim=2,
        v_head_dim=2,
    ),
    folder(
        "layer_types has 'chunked_attention', which is not imported",
        model_type="ministral",
        layer_types=["chunked_attention"],
    ),
    folder(
        "config.json: layer_types must be a list of 1 values, one a layer",
        model_type="ministral",
        layer_types=[],
    ),
    folder(
        "config.json lacks 'sliding_window', which layer_types asks for",
        model_type="mellum",
        layer_types=["sliding_attention"],
        mlp_layer_types=["dense"],
    ),
    folder(
        "rope_type 'mrope' is not read; did you mean 'longrope'? (valid: {})",
        rope_scaling={"rope_type": "mrope"},
    ),
    folder("rope_type yarn lacks 'factor'", rope_scaling={"type": "yarn"}),
    folder(
        "rope_type linear has senseless parameters: {}",
        rope_scaling={"type": "linear", "factor": "two"},
    ),
    folder(
        "longrope has lists of 3 factors; this head has 2 pairs",
        rope_scaling={"type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 1, 1]},
    ),
    folder(
        "rope_type dynamic with factor=4.0 is none of our variants; dynamic_ntk_aware is its "
        "factor=1",
        rope_scaling={"type": "dynamic", "factor": 4.0},
    ),
    folder("rope_scaling must be an object, got 'yarn'", rope_scaling="yarn"),
    folder(
        "config.json says rope_theta=100.0 and, in rope_parameters, 500000.0; make them agree",
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    ),
    folder(
        "rope_parameters differ by kind of layer, which this class does not have",
        rope_parameters={"full_attention": {"rope_type": "default"}},
    ),
    folder(
        "hf/pytorch_model.bin is a pickle, which can run code and is never loaded; take the "
        "model's safetensors files, or convert it where you trust it",
        {"hf/model.safetensors": None, "hf/pytorch_model.bin": b"cos\nsystem\n(S'touch new'\ntR."},
    ),
    folder("hf has no *.safetensors", {"hf/model.safetensors": None}),
    folder(
        "hf has 2 *.safetensors and no model.safetensors.index.json",
        {"hf/model.safetensors": None, "hf/a.safetensors": WHOLE, "hf/b.safetensors": WHOLE},
    ),
    folder(
        "hf/model.safetensors is damaged or cut short ({}); fetch it again",
        {"hf/model.safetensors": WHOLE[:-8]},
    ),
    folder(
        "hf/model.safetensors is damaged or cut short ({}); fetch it again",
        {"hf/model.safetensors": b"<html>404</html>"},
    ),
    folder(
        "hf/model.safetensors: 'model.norm.weight' is I64; tensors must be F32, F16, BF16: "
        "dequantize the model first",
        {"hf/model.safetensors": save(tensors(model__norm__weight=np.ones(D, np.int64)))},
    ),
    folder(
        "hf/model.safetensors.index.json is damaged (no weight_map of names to files beside it)",
        {INDEX: '{"weight_map": {"model.norm.weight": "../model.safetensors"}}'},
    ),
    folder(
        "hf: model-2.safetensors is missing, which model.safetensors.index.json names; the "
        "download is not whole",
        {INDEX: '{"weight_map": {"model.norm.weight": "model-2.safetensors"}}'},
    ),
    folder(
        "hf/model.safetensors lacks 'lm_head.weight', which model.safetensors.index.json names",
        {INDEX: '{"weight_map": {"lm_head.weight": "model.safetensors"}}'},
    ),
    held("hf lacks the tensor model.norm.weight", model__norm__weight=None),
    held(
        "hf: model.norm.weight is [5], and config.json makes it [4]",
        model__norm__weight=np.ones(5, np.float32),
    ),
    held(
        "hf: lm_head.weight is not the embedding, and config.json ties them",
        lm_head__weight=np.zeros((V, D), np.float32),
    ),
    held(
        "hf: 'model.norm.bias' and 0 more tensors have no place in this model",
        model__norm__bias=np.ones(D, np.float32),
    ),
    Row(
        two_dtypes,
        "hf: model.layers.*.input_layernorm.weight is float16 and float32 in different layers; "
        "convert it to one",
    ),
    Row(
        swapped,
        "hf: queries and keys look interleaved (Meta's order), which this format is not; give "
        "--layout interleaved, or --layout half to take them as they are",
    ),
    Row(
        no_folder,
        "hf is no folder; give one with config.json and *.safetensors",
    ),
    Row(
        "-m interop import hf new",
        "hf: the tokenizer has {} ids and the model 8; they do not belong together",
        files={"hf/config.json": config(), "hf/model.safetensors": WHOLE},
        given=done(lambda: Path("run/tokenizer.model").rename("hf/tokenizer.model")),
        run=True,
    ),
]
