"""`generate` and `generate.py` with a trained model of the repository."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from ropewalk.evals.generation import command, generate
from ropewalk.experiment import load

pytestmark = pytest.mark.slow

RUN = Path(__file__).parent.parent.parent / "notebooks/runs/base=10000,num_heads=1"
PROMPT = "import numpy as np\n\n\ndef "


@pytest.fixture(scope="module")
def run():
    return load(RUN)


def test_prompts_are_texts_or_ids(run):
    [result] = generate(run, [PROMPT], max_new_tokens=12)
    assert result.text == run.tokenizer.decode(result.tokens)
    ids = [run.tokenizer.bos_id, *run.tokenizer.encode(PROMPT)]
    assert (result.prompt_tokens, result.finish) == (len(ids), "length")
    again, empty = generate(run, [ids, ""], max_new_tokens=12)
    assert again.tokens == result.tokens and empty.prompt_tokens == 1
    [cold] = generate(run, [PROMPT], max_new_tokens=12, temperature=1e-300)  # 0 in float32
    assert cold.tokens == result.tokens


@pytest.mark.long
def test_another_variant(run):
    longer = run.with_rotary("dynamic_ntk_aware")
    prompt = [1, *run.tokenizer.encode("x = 1\n" * 40)][: run.config.data.context_length - 2]
    [result] = generate(longer, [prompt], max_new_tokens=4)  # two within the trained length
    row = list(prompt)
    for new in result.tokens:
        assert new == int(np.asarray(longer.logits(np.array([row])))[0, -1].argmax())
        row.append(new)


def test_streamed_text_equals_result(run):
    output: dict[int, list[str]] = {0: [], 1: []}
    options = dict(max_new_tokens=80, temperature=1.5, seed=3, stop=("e",))
    result = generate(run, ["é" * 9, ""], stream=lambda i, text: output[i].append(text), **options)
    for i, generated in enumerate(result):
        *parts, end = output[i]
        assert end == "" and all(parts) and "".join(parts) == generated.text
        assert generated.finish == "stop" and "e" not in generated.text


def test_samples_depend_on_seed_and_prompt_only(run):

    def sample(*prompts, seed=0):
        texts = generate(run, prompts, max_new_tokens=20, temperature=1.0, seed=seed)
        return [generated.tokens for generated in texts]

    first, second = sample("a", "a")
    other, again = sample("b", "a")
    assert first != second and again == first and sample("a", "b") == [first, other]
    assert sample("a", "a", seed=1)[0] != first


def test_the_end_of_a_document(run):
    """All hidden states are 0, so all logits are equal and the lowest id comes next."""
    params = dict(run.params)
    params["final_norm"] = {"scale": np.zeros_like(params["final_norm"]["scale"])}
    ending = type(run)(run.directory, run.step, run.config, params)
    [result] = generate(ending, ["x"], max_new_tokens=3)
    assert result.tokens == [0, 0, 0]
    ending.tokenizer.eos_id, eos_id = 0, ending.tokenizer.eos_id
    [result] = generate(ending, ["x"], max_new_tokens=3)
    ending.tokenizer.eos_id = eos_id
    assert (result.tokens, result.text, result.finish) == ([], "", "eos")


def test_the_command(run, capsys, monkeypatch, tmp_path):
    first, second = generate(run, ["import ", "def f("], max_new_tokens=9)
    assert command.main([str(RUN), "--prompt", "import ", "--max-new-tokens", "9"]) == 0
    assert capsys.readouterr().out == first.text + "\n"
    (tmp_path / "prompts").write_text("import \n\ndef f(\n")
    assert command.main([str(RUN), f"--prompts={tmp_path / 'prompts'}", "--max-new-tokens=9"]) == 0
    assert capsys.readouterr().out == f"> import \n{first.text}\n> def f(\n{second.text}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("import \n\ndef f(\n"))
    arguments = [str(RUN), "--json", "--max-new-tokens=130", "--rotary=dynamic_yarn"]
    assert command.main(arguments) == 0
    output = capsys.readouterr()
    printed = json.loads(output.out)
    assert printed["step"] == run.step and printed["rotary"].startswith("dynamic_yarn(")
    [result] = printed["results"]
    assert result["prompt"] == "import \n\ndef f(" and len(result["tokens"]) == 130
    assert result["finish"] == "length"
    assert output.err.startswith("note: ") and "trained at 128" in output.err
