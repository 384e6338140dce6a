import json
import re

import numpy as np
import pytest
import zstandard

from ropewalk import evals
from ropewalk.evals.tasks.lines import Lines
from tests.evals.helpers import make_documents

INTRO = (
    "Below is a record of lines I want you to remember. Each line begins with 'line <line index>' "
    "and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. For each "
    "line index, memorize its corresponding <REGISTER_CONTENT>. At the end of the record, I will "
    "ask you to retrieve the corresponding <REGISTER_CONTENT> of a certain line index. Now the "
    "record start:\n\n"
)
LINE = r"line (.+): REGISTER_CONTENT is <(\d+)>\n"
END = (
    "\nNow the record is over. Tell me what is the <REGISTER_CONTENT> in line {key}? I need the "
    "number. Line <{key}>: <REGISTER_CONTENT> is <{value}"
)


def check(tokenizer, document, digits):
    """The official prompt, one line asked, answered by the right number."""
    text = tokenizer.decode(document.tokens)
    assert text.startswith(INTRO)
    lines = re.findall(LINE, text)
    key = re.search(r"in line (.+)\? I need", text)[1]
    value = dict(lines)[key]
    assert re.fullmatch(rf"\d{digits}", value)
    record = "".join(f"line {key}: REGISTER_CONTENT is <{value}>\n" for key, value in lines)
    assert text == INTRO + record + END.format(key=key, value=value)
    ((start, count, distance),) = document.answers.tolist()
    assert tokenizer.decode(document.tokens[start:]) == value and count == len(value)
    passage = tokenizer.decode(document.tokens[start - 1 - distance : start])
    assert passage.startswith(value + ">\n")
    assert text.count(f"line {key}: REGISTER_CONTENT is <{value}>\n") == 1
    return [key for key, _ in lines].index(key) / len(lines)


def test_the_official_wording(prose_config, prompt_tokenizer):
    task = Lines(template="official")
    result = make_documents(task, prose_config, prompt_tokenizer, 900, range(40))
    depths = [check(prompt_tokenizer, document, "{5}") for document in result]
    assert min(depths) < 0.2 and max(depths) > 0.8


@pytest.fixture
def cases(tmp_path):
    """Official cases, made by hand: numbers of four, five and one digits."""
    path = tmp_path / "3_lines.jsonl.zst"
    values = {"torpid-kid": 2416, "wide-eyed-owl": 42527, "drab-hall": 7}
    lines = [f"line {key}: REGISTER_CONTENT is <{value}>\n" for key, value in values.items()]
    text = ""
    for index, (key, value) in enumerate(values.items()):
        question = END.format(key=key, value="").partition("Line <")[0]
        record = {"random_idx": [key, index], "expected_number": value, "num_lines": 3}
        record |= {"correct_line": lines[index], "prompt": INTRO + "".join(lines) + question}
        text += json.dumps(record) + "\n"
    path.write_bytes(zstandard.compress(text.encode()))
    return path


def test_official_cases_are_asked_as_they_are(cases, prose_config, prompt_tokenizer):
    task = evals.parse(f"lines(template=official,cases='{cases}')")
    result = make_documents(task, prose_config, prompt_tokenizer, 400, range(9))
    assert [document.number for document in result] == [0, 1, 2]
    assert [check(prompt_tokenizer, document, "{1,5}") for document in result] == [0, 1 / 3, 2 / 3]
    (last,) = make_documents(task, prose_config, prompt_tokenizer, 400, range(2, 3))
    np.testing.assert_array_equal(last.tokens, result[2].tokens)
    # The file decides how long they are.
    longest = max(len(document.tokens) for document in result)
    make_documents(task, prose_config, prompt_tokenizer, longest - 1, range(9))
    with pytest.raises(ValueError, match=rf"do not fit length=\d+; .* --lengths {longest - 1} or"):
        make_documents(task, prose_config, prompt_tokenizer, longest - 2, range(9))
