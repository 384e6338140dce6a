import re

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


def test_the_official_wording(prose_config, prompt_tokenizer):
    """One line is asked, and answered by the right number."""
    depths, task = [], Lines(template="official")
    for document in make_documents(task, prose_config, prompt_tokenizer, 900, range(40)):
        text = prompt_tokenizer.decode(document.tokens)
        lines = re.findall(LINE, text)
        key = re.search(r"in line (.+)\? I need", text)[1]
        value = dict(lines)[key]
        assert re.fullmatch(r"\d{5}", value)
        record = "".join(f"line {key}: REGISTER_CONTENT is <{value}>\n" for key, value in lines)
        assert text == INTRO + record + END.format(key=key, value=value)
        ((start, count, distance),) = document.answers.tolist()
        assert prompt_tokenizer.decode(document.tokens[start:]) == value and count == 5
        passage = prompt_tokenizer.decode(document.tokens[start - 1 - distance : start])
        assert passage.startswith(value + ">\n")
        assert text.count(f"line {key}: REGISTER_CONTENT is <{value}>\n") == 1
        depths.append([key for key, _ in lines].index(key) / len(lines))
    assert min(depths) < 0.2 and max(depths) > 0.8
