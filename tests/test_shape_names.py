"""Array names carry their shapes; in `model/` an einsum must use the letters of its names.

`logits_BKGTS = jnp.einsum("BTKGH,BSKH->BKGTS", q_BTKGH, k_BSKH)` proves itself.
"""

import ast
import re
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parent.parent / "model").rglob("*.py"))
SUFFIX = re.compile(r"^[a-z0-9_]+?_([A-Z1]+)$")
# T and S both number tokens: keys are made from the row that queries come from.
SAME = str.maketrans({"S": "T"})


def suffix(node: ast.expr) -> str | None:
    """The shape letters of a name: `x_BTD`, or of `x_BTD[:, :n]`, `x_BTD.astype(...)`."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr != "astype":
                return None
            node = node.func.value
        elif isinstance(node, ast.Subscript):
            slices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if not all(isinstance(s, ast.Slice) for s in slices):
                return None  # an index or None changes the rank
            node = node.value
        else:
            return None
    match = SUFFIX.match(node.id)
    return match.group(1) if match else None


def mistakes(source: str) -> list[str]:
    """Lines where a name's letters differ from its operand's."""
    tree = ast.parse(source)
    targets = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            targets[node.value] = node.targets[0]
    messages = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        # `_product` is one in float32; it hands on a formula that stands elsewhere.
        if called not in ("einsum", "_product") or not isinstance(node.args[0], ast.Constant):
            continue
        formula = ast.literal_eval(node.args[0])
        inputs, _, output = formula.partition("->")
        pairs = list(zip(inputs.split(","), node.args[1:], strict=True))
        if node in targets:
            pairs.append((output, targets[node]))
        for letters, operand in pairs:
            name_letters = suffix(operand)
            if name_letters is not None and name_letters != letters:
                both = any({"S", "T"} <= set(x) for x in (name_letters, letters))
                if not both and name_letters.translate(SAME) == letters.translate(SAME):
                    continue
                messages.append(f"line {node.lineno}: {formula}: {ast.unparse(operand)}")
    return messages


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_einsums_agree_with_names(path):
    assert not mistakes(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "line",
    [
        'key_BMHK = jnp.einsum("BLD,DHK->BLHK", x_BLD, w_DHK)',  # Shazeer's own slip
        'y_BTF = jnp.einsum("BTD,DF->BTF", x_BDT, w_DF)',
        'y_BTF = jnp.einsum("BTD,DF->BTF", x_BTD, w_FD[:, :4])',
        'y_BTF = jnp.einsum("BTD,DF->BTF", x_BTD, w_FD.astype(dtype))',
        'out_BTH = jnp.einsum("BST,BSH->BTH", weights_BTS, v_BSH)',
        'out_BTH = _product("BTS,BSH->BTH", weights_BST, v_BSH)',
    ],
)
def test_slips_are_caught(line):
    assert mistakes(line)
