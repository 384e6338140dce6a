import re

from ropewalk import evals
from tests.evals.helpers import make_documents

NOISE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
)
INTRO = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
QUESTION = (
    "Question: Find all variables that are assigned the value {value} in the text above. Answer: "
    "According to the chain(s) of variable assignment in the text above, {count} variables are "
    "assigned the value {value}, they are:  {names}"
)


def parts(text):
    """Lines and question of an example or a question."""
    start, _, rest = text.partition("\n\n")
    assert start + "\n\n" == INTRO
    lines, _, question = rest.partition("Question: ")
    return lines.splitlines(keepends=True), "Question: " + question


def chain(lines):
    """Names in order, value, and places of the statements among the lines of noise."""
    statements = [(index, line) for index, line in enumerate(lines) if line != NOISE]
    assert all(line.startswith("VAR ") for _, line in statements)
    first = re.fullmatch(r"VAR ([A-Z]+) = ([1-9]\d{4})\n", statements[0][1])
    names = [first[1]]
    for _, line in statements[1:]:
        name, other = re.fullmatch(r"VAR ([A-Z]+) = VAR ([A-Z]+) \n", line).groups()
        assert other == names[-1]
        names.append(name)
    return names, first[2], tuple(index for index, _ in statements)


def test_the_prompt_is_rulers_with_one_example(prose_config, prompt_tokenizer):
    cases = set()
    for task, hops in (("vt", 4), ("vt(hops=2)", 2)):
        for document in make_documents(
            evals.parse(task), prose_config, prompt_tokenizer, 1200, range(12)
        ):
            example, query = prompt_tokenizer.decode(document.tokens).split("\n\n" + INTRO[:20])
            for letters, (lines, question) in ((3, parts(example)), (5, parts(INTRO[:20] + query))):
                names, value, places = chain(lines)
                assert len(set(names)) == hops + 1 and {len(name) for name in names} == {letters}
                assert question == QUESTION.format(
                    value=value, count=hops + 1, names=" ".join(names)
                )
                noise = len(lines) - len(names)
                assert noise == hops + 1 if letters == 3 else noise > hops + 3
            cases.add((value, *places))
            # One answer for each variable of the question, in the order of the chain.
            answers = [
                prompt_tokenizer.decode(document.tokens[s : s + n]) for s, n, _ in document.answers
            ]
            assert [answer.strip() for answer in answers] == names
            for (start, _, distance), name in zip(document.answers, names, strict=True):
                passage = prompt_tokenizer.decode(document.tokens[start - 1 - distance :])
                assert passage.strip().startswith(f"{name} = ")
    assert len(cases) == 24
