"""Bytes and words of answers, and the text that tasks share."""

import itertools

import numpy as np
import pytest
import sentencepiece

import evals
from data.config import DataConfig
from data.task import Document
from data.tokenizer import Tokenizer
from evals import text
from evals.tasks.fixed_target import FixedTarget
from evals.tasks.perplexity import Perplexity
from evals.tasks.repeated import Repeated
from evals.tasks.sliding_window import SlidingWindow
from tests.evals.helpers import experiment, make_documents

TEXTS = (
    "two words",
    "  led by spaces, ended by one ",
    "\n\r\nlines\tand\vother \f white\x0bspace\n",
    "x",
    "é ü 漢字 🙂 a\u00a0b c\u2003d",  # only ASCII separates words
    "a \u2581 b\u2581c",  # what SentencePiece writes for a space, as itself
    "<key_3> <value_7>x",
    "12345 6 7\n\n\n8",
)


@pytest.fixture(scope="module")
def llama_like(tmp_path_factory) -> Tokenizer:
    """Llama's settings: a space before the text, bytes for what it does not know."""
    path = tmp_path_factory.mktemp("llama") / "m"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["two words, ended by one", "other lines and white space"]),
        model_prefix=str(path),
        model_type="bpe",
        vocab_size=310,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return Tokenizer(path.with_suffix(".model"))


@pytest.mark.parametrize("name", ["tokenizer", "llama_like"])
@pytest.mark.parametrize("string", TEXTS)
def test_sizes_of_a_document_are_those_of_its_text(name, string, request):
    tokenizer = request.getfixturevalue(name)
    ids = np.array([tokenizer.bos_id, *tokenizer.encode(string), tokenizer.eos_id])
    result = text.sizes(tokenizer, ids)
    encoded = string.encode()
    assert result.sum(axis=0).tolist() == [len(encoded), len(encoded.split())]
    # Cut anywhere, a part has the words that start in it.
    decoded = b"".join(tokenizer.piece_bytes[i] for i in ids)[int(tokenizer.adds_space) :]
    assert decoded == encoded
    for cut in range(len(ids)):
        num_bytes, num_words = result[:cut].sum(axis=0)
        assert num_words == len(encoded[:num_bytes].split())


def test_documents_in_one_row_are_measured_each(llama_like):
    strings = ("two words", "ended")
    row = [i for s in strings for i in (llama_like.bos_id, *llama_like.encode(s))]
    assert text.sizes(llama_like, np.array(row)).sum(axis=0).tolist() == [14, 3]


def test_answers_are_measured_as_cut(tokenizer):
    pieces = [tokenizer.encode(part, inside=True) for part in ("one tw", "o three", " fo", "ur\n")]
    lengths = [len(piece) for piece in pieces]
    starts = 1 + np.cumsum([0, *lengths[:-1]])
    document = Document(
        tokens=np.array([tokenizer.bos_id, *itertools.chain(*pieces)], np.int32),
        answers=np.stack([starts, lengths, starts], axis=1).astype(np.int32),
        number=0,
    )
    sized = text.sized(document, text.sizes(tokenizer, document.tokens))
    assert sized.num_bytes is not None and sized.num_bytes.tolist() == [6, 7, 3, 3]
    assert sized.num_words is not None and sized.num_words.tolist() == [2, 1, 1, 0]


def test_a_crop_that_begins_inside_a_word_does_not_count_it(text_config, text_tokenizer, store):
    stored = {tuple(store.document(i).tolist()) for i in range(store.num_documents)}
    inside = 0
    for number in range(3):
        for seed in range(5):
            config = experiment(text_config.data, seed=seed)
            context = evals.task_context(config, text_tokenizer, 50)
            ((_, crop),) = text.crops(context, range(number, number + 1), task="test")
            ids, sizes_N2 = crop
            source = next(
                candidate for candidate in stored if _place(candidate, ids[1:]) is not None
            )
            start = _place(source, ids[1:])
            assert start is not None
            before = text_tokenizer.decode(source[1:start]).encode()
            upto = text_tokenizer.decode(source[1 : start + 50]).encode()
            num_words = len(upto.split()) - len(before.split())
            assert sizes_N2[1:].sum(axis=0).tolist() == [len(upto) - len(before), num_words]
            edge = upto[max(0, len(before) - 1) : len(before) + 1]
            inside += len(edge.strip()) == 2
    assert inside > 3


def _place(document, ids) -> int | None:
    n, ids = len(ids), tuple(ids.tolist())
    return next((i for i in range(len(document) - n + 1) if document[i : i + n] == ids), None)


@pytest.mark.parametrize(
    "task",
    [
        Perplexity(),
        FixedTarget(target=8),
        SlidingWindow(stride=8, tokens=10**6),
        Repeated(tokens=8),
    ],
)
def test_what_is_missing_is_said_before_compute(
    task, text_config, text_tokenizer, tokenizer, store, tmp_path
):
    def refusal(config, with_tokenizer, length=64):
        with pytest.raises(ValueError) as error:
            make_documents(task, config, with_tokenizer, length, range(3))
        message = str(error.value)
        assert type(task).__module__.rpartition(".")[2] in message and "\n" not in message
        return message

    none = DataConfig(source="retrieval", context_length=64, batch_size=1)
    assert "data.source=retrieval has none" in refusal(experiment(none), text_tokenizer)
    data = DataConfig(
        source="jsonl",
        path=str(tmp_path / "nowhere"),
        context_length=64,
        batch_size=1,
        prepared_root=str(tmp_path),
    )
    assert "nowhere" in refusal(experiment(data), text_tokenizer)
    assert "another tokenizer" in refusal(text_config, tokenizer)
    longest = max(len(store.document(i)) for i in range(store.num_documents)) - 1
    if isinstance(task, SlidingWindow):
        longest -= 1  # EOS is not scored
    assert f"ask for --lengths {longest} or less" in refusal(text_config, text_tokenizer, 50_000)
    assert make_documents(task, text_config, text_tokenizer, longest, range(99))


def test_symbols_of_retrieval_documents_are_text_too(tokenizer):
    """`<key_5>` in the text of a document is one id of five and more bytes."""
    none = DataConfig(source="retrieval", context_length=64, batch_size=1)
    document = make_documents("kv", experiment(none), tokenizer, 64, range(1))[0]
    keys = np.isin(document.tokens, tokenizer.keys)
    assert text.sizes(tokenizer, document.tokens)[keys, 0].min() >= len("<key_5>")
