"""Small copies of published tokenizers, made with `tokenizers` (`make test-hf`)."""

import json
from pathlib import Path

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")


def _byte_level(texts, *, regex: str | None, special: list[str], size: int):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=regex == LLAMA3))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if regex:
        split = pre_tokenizers.Split(Regex(regex), "isolated")
        pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pieces])
    if regex == QWEN:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(special)  # after all others, as published
    return tokenizer


def _write(folder: Path, **files: str | dict) -> Path:
    """Write JSON files; return the path of the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text)
    return folder / "tokenizer.json"


def llama3(texts, folder: Path, size: int = 1000) -> Path:
    """Pieces of three digits; the post-processor adds BOS; a config names BOS and EOS."""
    from tokenizers import processors

    names = ["<|begin_of_text|>", "<|end_of_text|>"]
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(6)]
    tokenizer = _byte_level(texts, regex=LLAMA3, special=names + reserved, size=size)
    bos = [(names[0], tokenizer.token_to_id(names[0]))]
    template = processors.TemplateProcessing(single=f"{names[0]} $A", special_tokens=bos)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template])
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= dict(zip(("bos_token", "eos_token"), names, strict=True))
    return _write(folder, tokenizer=tokenizer.to_str(), tokenizer_config=config)


def qwen(texts, folder: Path, size: int = 1000) -> Path:
    """Single digits, NFC, BOS only in config.json, added pieces."""
    from tokenizers import AddedToken

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = _byte_level(texts, regex=QWEN, special=special, size=size)
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    names = {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>"}
    ids = [tokenizer.token_to_id(name) for name in special]
    model = {"model_type": "qwen2", "bos_token_id": ids[0], "eos_token_id": [ids[2], ids[0]]}
    return _write(folder, tokenizer=tokenizer.to_str(), tokenizer_config=names, config=model)


def gpt2(texts, folder: Path, size: int = 1000) -> Path:
    """One special piece for BOS and EOS, in an older format."""
    tokenizer = _byte_level(texts, regex=None, special=["<|endoftext|>"], size=size)
    end = {"content": "<|endoftext|>", "lstrip": False, "normalized": True}
    return _write(folder, tokenizer=tokenizer.to_str(), special_tokens_map={"eos_token": end})


def gemma3(texts, folder: Path, size: int = 1000) -> Path:
    """SentencePiece's pieces with bytes; runs of spaces are added; one id beyond the model's."""
    from tokenizers import Tokenizer, models, normalizers, trainers

    runs = ["\u2581" * count for count in range(2, 32)]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special + runs, limit_alphabet=200, show_progress=False
    )
    lines = (line for text in texts for line in text.split("\n"))
    tokenizer.train_from_iterator(lines, trainer)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [
        token | {"special": token["content"] in special}
        for token in file["added_tokens"]
        if not token["content"].startswith("<0x")
    ]
    soft = file["added_tokens"][0] | {"id": size, "content": "<image_soft_token>"}
    file["added_tokens"].append(soft)
    spaces = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    decoders = [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}]
    file["decoder"] = {"type": "Sequence", "decoders": decoders}
    config = {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True}
    return _write(folder, tokenizer=file, tokenizer_config=config)


def across_spaces(texts, folder: Path, size: int = 1000) -> Path:
    """Pieces of several words and digits, such as " is: 12"."""
    tokenizer = _byte_level(texts, regex=r"[^\n]+|\n", special=["</s>"], size=size)
    names = {"eos_token": "</s>"}
    return _write(folder, tokenizer=tokenizer.to_str(), tokenizer_config=names)


MADE = {"llama3": llama3, "qwen": qwen, "gpt2": gpt2, "gemma3": gemma3}
