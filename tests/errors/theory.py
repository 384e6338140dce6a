"""Errors of `python -m theory`, `python -m model.rotary`, and the functions behind them."""

from model.rotary.rope import Rope
from tests.errors.table import Row
from theory import bound, family
from theory.capability import capability, forecast
from theory.decay import cosine_sum, first_violation

ROPE = Rope(base=10.0).inv_freq(64)[None]

ROWS = [
    *(
        Row(f"-m theory length {options}", says)
        for options, says in (
            ("--base 0.5 --head-dim 64", "base must be a finite number above 1, got 0.5"),
            ("--base nan --head-dim 64", "base must be a finite number above 1, got nan"),
            ("--base 10 --head-dim 63", "head_dim must be even and positive, got 63"),
            ("--base 10 --head-dim 64 --limit 0", "--limit must be at least 1 token, got 0"),
            (
                "--rotary yarm --head-dim 64",
                "unknown rotary variant 'yarm'; did you mean 'yarn'? (valid: {})",
            ),
            ("--head-dim 64", "one of the arguments --base --rotary run is required"),
            (
                "--base 10 --limit 1.5",
                "argument --limit: '1.5' is not a number of tokens, like 4096 or 128k",
            ),
            ("nowhere", "nowhere is not a run directory: it has no config.json"),
        )
    ),
    *(
        Row(f"-m theory bound --length {options}", says)
        for options, says in (
            ("1", "length must be from 2 to 2^31 tokens, got 1"),
            ("4000M", "length must be from 2 to 2^31 tokens, got 4194304000"),
            ("many", "argument --length: 'many' is not a number of tokens, like 4096 or 128k"),
            ("64 --head-dim 7", "head_dim must be even and positive, got 7"),
            (
                "64 --rotary-fraction 0.001",
                "rotary_fraction=0.001 of head_dim=128 rotates no pair; use nope, or at least "
                "0.015625",
            ),
            ("64 --head-dim 2", "no number below e^500 covers 64 tokens"),
            (
                "64 --rotary 'rope(base=10)'",
                "--rotary must have one `?` in place of a number, like rope(base=?), got {}",
            ),
            (
                "64 --rotary 'nope(base=?)'",
                "nope has no parameter 'base'; (valid: log_n, rotary_fraction)",
            ),
            (
                "64 --rotary 'llama3(base=?,factor=8,original_context_length=64)'",
                "no bound is known for base of llama3 with these parameters (valid: {})",
            ),
            (
                "64 --rotary 'yarn(base=?,factor=8,original_context_length=64,truncate=False)'",
                "no bound is known for base of yarn with these parameters (valid: {})",
            ),
            (
                "64 --rotary 'rope(base=?)' --rotary-fraction 0.5",
                "with --rotary, write rotary_fraction=... in the expression",
            ),
        )
    ),
    Row(
        "-m theory models llama-3-8",
        "unknown model 'llama-3-8'; did you mean 'llama-3-8b'? (valid: {})",
    ),
    Row("-m theory curve", "no curve to draw: give --base 1e4,1e6 or --rotary EXPR (repeatable)"),
    Row(
        "-m theory curve --base 10,x",
        "argument --base: '10,x' is not a comma list of bases, like 1e4,1e6",
    ),
    Row(
        "-m theory curve --base 10 --out b.xyz",
        "--out and --figure take a .png, .svg or .pdf file, got b.xyz",
    ),
    Row(
        "-m theory capability --rotary 'rope(base=10)' --heads 0 --length 64",
        "--heads must be at least 1, got 0",
    ),
    Row(
        "-m theory capability --heads 2 --length 64 run",
        "--heads is not allowed with a run, which has its own number of heads: omit it",
        run=True,
    ),
    *(
        Row(f"-m theory.show show {options}", says)
        for options, says in (
            ("rop", "unknown config or variant 'rop'; did you mean 'rope'? (valid: {})"),
            ("rope", "rope needs base: write rope(base=...)"),
            (
                "'rope(bse=10)'",
                "rope has no parameter 'bse'; did you mean 'base'? (valid: base, log_n, "
                "rotary_fraction)",
            ),
            ("'rope(base=10)' --head-dim 7", "head_dim must be even and positive, got 7"),
            ("'rope(base=10)' --length 0", "--length must be at least 1, got 0"),
            ("'rope(base=10)' --head-dim -2", "--head-dim must be at least 1, got -2"),
            (
                "'explicit(values=(1,2))'",
                "Explicit has 2 frequencies; rotary_dim=128 needs 64, one per pair",
            ),
            (
                "'rope(base=10)' --plot missing/a.png",
                "[Errno 2] No such file or directory: 'missing/a.png'",
            ),
            (
                "'rope(base=10)' --plot a.xyz",
                "Format 'xyz' is not supported (supported formats: {})",
            ),
            ("'rope(base=10)' --lenth 3", "unrecognized arguments: --lenth 3"),
            ("", "the following arguments are required: CONFIG_OR_EXPR"),
        )
    ),
    *(
        Row(
            lambda f=function, n=length: f(n), f"length must be from 2 to 2^31 tokens, got {length}"
        )
        for function in (bound.smallest_base, bound.stable_base)
        for length in (-1, 0, 1, 2**31 + 1)
    ),
    Row(
        lambda: bound.smallest(family.rope_base(16), [20, 10]),
        "lengths must not fall, got [20, 10]",
    ),
    # cos 2 < 0 whatever the base of a single pair.
    Row(lambda: bound.smallest_base(3, 2), "no number below e^500 covers 3 tokens"),
    Row(lambda: bound.stable_base(3, 2), "no number below e^500 is stable at 3 tokens"),
    *(
        Row(lambda a=shortest, b=length: capability(ROPE, b, shortest=a), says)
        for shortest, length, says in (
            (0, 5, "distances must lie within 1 and 131072 tokens, got 0 to 5"),
            (6, 5, "distances must lie within 1 and 131072 tokens, got 6 to 5"),
            (1, 2**17 + 1, "distances must lie within 1 and 131072 tokens, got 1 to 131073"),
        )
    ),
    Row(
        lambda: forecast(ROPE, num_others=0, longest=5), "num_others must be at least 1 key, got 0"
    ),
    Row(
        lambda: cosine_sum(ROPE[0], [2**31]), "distances must be below 2^31 tokens, got 2147483648"
    ),
    Row(
        lambda: first_violation([1.0], limit=2**31 + 1),
        "limit must be at most 2^31 tokens, got 2147483649",
    ),
]
