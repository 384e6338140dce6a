"""What the files of a published model say besides its tensors."""

import dataclasses
import functools
import json
import re
import shutil
from pathlib import Path

import pytest
import tokenizers

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals.generation import generate
from ropewalk.experiment import load
from ropewalk.experiment.checkpoint import leaves_by_name, write_params
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.experiment.run import PUBLISHED, RunDirectory
from ropewalk.interop.export import export
from ropewalk.interop.importing import import_folder
from ropewalk.interop.transformers_model import find_other_ids
from tests.damage import flip
from tests.data import json_tokenizers
from tests.data.hard_text import SOURCES, hard_text
from tests.interop.weights_helpers import CONTEXT, PLAIN, changed, make_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def publish(tmp_path_factory):
    """Return a function from a publisher to a folder with a model of 1,000 or more ids."""

    @functools.cache
    def folder_of(publisher: str) -> Path:
        top = tmp_path_factory.mktemp(publisher)
        path = json_tokenizers.MADE[publisher](SOURCES[:10], top / "tokenizer")
        size = max(tokenizers.Tokenizer.from_file(str(path)).get_vocab().values()) + 1
        size -= publisher == "gemma3"
        model = changed(PLAIN, num_layers=1, vocab_size=size)
        export(make_run(top / "run", model).path, top / "out")
        for file in path.parent.glob("tokenizer*.json"):
            shutil.copy(file, top / "out")
        return top / "out"

    return folder_of


@pytest.fixture(scope="module")
def imported(publish, tmp_path_factory) -> LoadedRun:
    folder = tmp_path_factory.mktemp("imported") / "run"
    return load(import_folder(publish("llama3"), folder, compare=False).path)


def published(folder: Path, to: Path, **files: dict) -> Path:
    """Copy a folder, with changed JSON files."""
    ignored = shutil.ignore_patterns("logit_check.json")  # a change would break it
    shutil.copytree(folder, to, ignore=ignored)
    for name, changes in files.items():
        path = to / f"{name}.json"
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(content | changes))
    return to


def test_ids_that_a_model_lacks_are_left_out_of_its_tokenizer(publish, tmp_path, capsys):
    """Gemma 3's text models have one id less than their tokenizer, and texts never use it."""
    run = import_folder(publish("gemma3"), tmp_path / "run", compare=False)
    assert "left out '<image_soft_token>'" in capsys.readouterr().err
    text = hard_text(50_000)
    theirs = tokenizers.Tokenizer.from_file(str(publish("gemma3") / "tokenizer.json"))
    theirs.encode_special_tokens = True
    assert run.tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids
    assert run.tokenizer.vocab_size == run.config.model.vocab_size == 1000
    assert max(run.tokenizer.encode("<image_soft_token>", special=True)) < 1000
    export(run.path, tmp_path / "out")
    again = (tmp_path / "out" / "tokenizer.json").read_bytes()
    assert again == (publish("gemma3") / "tokenizer.json").read_bytes()


def test_an_import_names_what_its_tokenizer_changes(publish, tmp_path, capsys):
    """A normalizer drops 2 spaces in front, and a no-break space (2 bytes) and a space behind."""
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    for normalizer in (strip, None):
        folder = published(publish("llama3"), tmp_path / "in", tokenizer={"normalizer": normalizer})
        import_folder(folder, tmp_path / "run", compare=False)
        line = "tokenizer.json does not keep every text ('  a  b"
        assert (line in (output := capsys.readouterr().err)) == bool(normalizer)
        assert ("47 bytes of a test text become 42" in output) == bool(normalizer)
        shutil.rmtree(folder), shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize(("file", "is_list"), [("generation_config", True), ("config", False)])
def test_every_id_that_ends_a_turn_ends_a_text(file, is_list, publish, imported, tmp_path):
    """Chat models end a turn with another id than a document, in the published files."""
    prompt = [[imported.tokenizer.bos_id, 5, 6]]
    (before,) = generate(imported, prompt, max_new_tokens=6)
    end = before.tokens[3]
    ends = [imported.tokenizer.eos_id, end] if is_list else end
    folder = published(publish("llama3"), tmp_path / "in", **{file: {"eos_token_id": ends}})
    run = import_folder(folder, tmp_path / "run", compare=False)
    (after,) = generate(load(run.path), prompt, max_new_tokens=6)
    assert after.tokens == before.tokens[: before.tokens.index(end)] and after.finish == "eos"
    export(run.path, tmp_path / "out")
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == ends


def test_a_continued_model_names_its_base_license_and_context(publish, tmp_path):
    length, name = {"model_max_length": 131_072}, {"_name_or_path": "some/Some-1B"}
    folder = published(publish("llama3"), tmp_path / "in", tokenizer_config=length, config=name)
    (folder / "LICENSE").write_text("the terms")
    (folder / "chat_template.jinja").write_text("{{ 1 }}\n")
    parent = import_folder(folder, tmp_path / "parent", compare=False)
    child = RunDirectory(tmp_path / "child")
    data = dataclasses.replace(parent.config.data, context_length=2 * CONTEXT)
    question = "Which base sees farthest?"
    changes = dict(start_from=str(parent.path), data=data, question=question)
    config = dataclasses.replace(parent.config, **changes)
    child.write_config(config, (), parent.tokenizer_sha256)
    shutil.copy(parent.tokenizer_path, child.path)
    leaves = leaves_by_name(load(parent.path).params)
    changed_leaves = ((name, leaf * 1.5) for name, leaf in leaves.items())
    write_params(child, 0, changed_leaves, list(leaves))
    shutil.rmtree(parent.path)  # what the run needs of its parent, it has
    export(child.path, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "\nbase_model: some/Some-1B\n" in card and question not in card
    written = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert written["model_max_length"] == 2 * CONTEXT
    for file in ("LICENSE", "chat_template.jinja"):
        assert (tmp_path / "out" / file).read_bytes() == (folder / file).read_bytes()
    kept = child.path / PUBLISHED / "tokenizer_config.json"
    assert kept.read_bytes() == (folder / "tokenizer_config.json").read_bytes()
    for spoil in (flip, Path.unlink):
        spoil(kept)
        for read in (export, lambda run, _: load(run).tokenizer):
            with pytest.raises(ValueError, match=f"{kept} is not what was imported; put back"):
                read(child.path, tmp_path / "again")


def test_a_file_that_was_published_and_has_changed_is_refused(publish, tmp_path):
    """A flipped bit, a file of another model, a deleted generation_config.json (its stop ids)."""
    ends = {"eos_token_id": [1, 2]}
    folder = published(publish("llama3"), tmp_path / "in", generation_config=ends)
    run = import_folder(folder, tmp_path / "run", compare=False)
    kept = run.path / PUBLISHED
    contents = {path: path.read_bytes() for path in kept.iterdir()}
    contents[kept / "chat_template.jinja"] = None
    for path, content in contents.items():
        for changed_content in (b"{}", None) if content else (b"{{ 1 }}",):
            path.write_bytes(changed_content) if changed_content else path.unlink()
            for use in (
                lambda: RunDirectory(run.path).tokenizer,
                lambda: export(run.path, tmp_path / "out"),
            ):
                with pytest.raises(ValueError, match=f"{path.name} is not what was imported"):
                    use()
            path.write_bytes(content) if content else path.unlink()
    shutil.rmtree(kept)
    with pytest.raises(ValueError, match=r"is not what was imported"):
        export(run.path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.hf
def test_ids_that_differ_from_those_of_transformers_are_named(publish, tmp_path, capsys):
    """tokenizer_config.json may name a class with rules of its own, or add tokens."""
    pytest.importorskip("transformers")
    base = {"eos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    messages = []
    for changes in (base, base | {"tokenizer_class": "Qwen2Tokenizer"}):
        folder = published(publish("gpt2"), tmp_path / f"{len(messages)}", tokenizer_config=changes)
        import_folder(folder, tmp_path / f"run-{len(messages)}")
        messages.append(capsys.readouterr().err)
    assert "ids of the run" not in messages[0]
    assert re.search(r"after .* a text has ids \[\d+, .*, and transformers' \[\d+", messages[1])
    token = {"content": "<|turn|>", "special": True, "lstrip": False, "rstrip": False}
    token |= {"normalized": False, "single_word": False}
    tokenizer = Tokenizer(folder / "tokenizer.json")
    base["added_tokens_decoder"] = {str(tokenizer.vocab_size): token}
    (folder / "tokenizer_config.json").write_text(json.dumps(base))
    expected = f"id {tokenizer.vocab_size} is missing, and transformers' '<|turn|>'"
    assert find_other_ids(folder, tokenizer, 5000) == expected
    assert not find_other_ids(folder, tokenizer, tokenizer.vocab_size)
