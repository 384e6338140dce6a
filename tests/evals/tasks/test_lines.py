import re

from evals.tasks.lines import Lines
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


def check(tokenizer, document):
    """The official prompt, one line asked, answered by the right number."""
    text = tokenizer.decode(document.tokens)
    assert text.startswith(INTRO)
    lines = re.findall(LINE, text)
    key = re.search(r"in line (.+)\? I need", text)[1]
    value = dict(lines)[key]
    assert re.fullmatch(r"\d{5}", value)
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
    depths = [check(prompt_tokenizer, document) for document in result]
    assert min(depths) < 0.2 and max(depths) > 0.8
