"""Rotary variants that cannot be, and vectors and files that hold none."""

from model import rotary
from model.rotary.explicit import Explicit
from model.rotary.longrope import Longrope
from model.rotary.ntk_aware import NtkAware
from model.rotary.rope import Rope
from tests.errors.table import Row
from utils import plugins


def refused(text: str, says: str, **more) -> Row:
    """A row of an expression."""
    return Row(lambda: rotary.parse(text), says, **more)


def own(text: str, says: str, *, code: str) -> Row:
    """A row of a variant in a file of the user's own."""
    return refused(text, says, files={"mine.py": code}, given=lambda _: plugins.allow("mine.py"))


OWN = """
import dataclasses
from model.rotary.base import Dynamic, Rotary

@dataclasses.dataclass(frozen=True, kw_only=True)
class Bent(Dynamic):
    def at_length(self, length):
        return self
"""
LONGROPE = Longrope(
    base=1e4, pair_factors=8 * (1.0,), original_context_length=4096, target_context_length=8192
)

ROWS = [
    refused("rope", "rope needs base: write rope(base=...)"),
    refused("rope(base=1)", "base must be a finite number above 1, got 1"),
    refused("rope(base=0.5)", "base must be a finite number above 1, got 0.5"),
    refused("rope(base=-3)", "base must be a finite number above 1, got -3"),
    refused("rope(base=1e999)", "base must be a finite number above 1, got inf"),
    refused("rope(base=ten)", "base must be a finite number above 1, got 'ten'"),
    refused("rope(base='10')", "base must be a finite number above 1, got '10'"),
    refused("rope(base=10, base=20)", "rotary variant 'rope(base=10, base=20)' gives base twice"),
    refused(
        "rope(base=10,log_n=on)",
        "log_n must be one of its words, got 'on'; did you mean 'off'? (valid: extrapolate, "
        "off, train)",
    ),
    refused(
        "rope(base=10,rotary_fraction=0)",
        "rotary_fraction must be a finite number in (0, 1], got 0",
    ),
    refused(
        "rope(base=10,rotary_fraction=1.5)",
        "rotary_fraction must be a finite number in (0, 1], got 1.5",
    ),
    refused("rope(base=10", "rotary variant 'rope(base=10' lacks its closing ')'"),
    refused("rope(**{})", "rope has no parameter '**'; (valid: base, log_n, rotary_fraction)"),
    refused(
        "rope(10)",
        "rotary variant 'rope(10)' is not of the form name(parameter=value,...); a value "
        "that is no number or plain word goes in quotes: path='a/b'",
    ),
    refused("rope(base=[1,f()])", "rope(base=...) must be a number, string or tuple"),
    refused("ropee(base=10)", "unknown rotary variant 'ropee'; did you mean 'rope'? (valid: {})"),
    refused(
        "",
        "rotary variant '' is not of the form name(parameter=value,...); a value that is no "
        "number or plain word goes in quotes: path='a/b'",
    ),
    refused("nope(base=10)", "nope has no parameter 'base'; (valid: log_n, rotary_fraction)"),
    refused(
        "p_rope(base=10,rotary_fraction=2)",
        "rotary_fraction must be a finite number in (0, 1], got 2",
    ),
    refused("p_rope(base=1)", "base must be a finite number above 1, got 1"),
    refused("method1(base=1)", "base must be a finite number above 1, got 1"),
    refused(
        "position_interpolation(base=10,factor=0.99)",
        "factor must be a finite number of at least 1, got 0.99",
    ),
    refused(
        "ntk_aware(base=10,factor=big)", "factor must be a finite number of at least 1, got 'big'"
    ),
    refused("ntk_aware(base=10,factor=0)", "factor must be a finite number of at least 1, got 0"),
    refused(
        "ntk_aware(base=10,factor=1e999)", "factor must be a finite number of at least 1, got inf"
    ),
    refused(
        "ntk_fixed(base=10,factor=0.5)", "factor must be a finite number of at least 1, got 0.5"
    ),
    refused("ntk_old(base=10,factor=0.5)", "factor must be a finite number of at least 1, got 0.5"),
    refused(
        "ntk_mixed(base=10,factor=0.5)", "factor must be a finite number of at least 1, got 0.5"
    ),
    refused(
        "ntk_mixed(base=10,factor=2,exponent=-0.1)",
        "exponent must be a finite number in [0, 1], got -0.1",
    ),
    refused(
        "ntk_mixed(base=10,factor=2,exponent=1.1)",
        "exponent must be a finite number in [0, 1], got 1.1",
    ),
    refused(
        "ntk_mixed(base=10,factor=2,exponent=big)",
        "exponent must be a finite number in [0, 1], got 'big'",
    ),
    refused(
        "ntk_by_parts(base=500,factor=0.5,original_context_length=2048)",
        "factor must be a finite number of at least 1, got 0.5",
    ),
    refused(
        "ntk_by_parts(base=500,factor=8,original_context_length=0)",
        "original_context_length must be a whole number of at least 1, got 0",
    ),
    refused(
        "ntk_by_parts(base=500,factor=8,original_context_length=2048,beta_slow=0)",
        "beta_slow must be a finite number above 0, got 0",
    ),
    refused(
        "ntk_by_parts(base=500,factor=8,original_context_length=2048,beta_fast=1)",
        "beta_fast=1 must be above beta_slow=1.0",
    ),
    refused(
        "dynamic_ntk_by_parts(base=500,original_context_length=2048,beta_fast=0.5)",
        "beta_fast=0.5 must be above beta_slow=1.0",
    ),
    refused(
        "yarn(base=1e4,factor=8,original_context_length=4096,beta_fast=1)",
        "beta_fast=1 must be above beta_slow=1.0",
    ),
    refused(
        "yarn(base=10,factor=2,original_context_length=64,truncate=1)",
        "truncate must be True or False, got 1",
    ),
    refused(
        "yarn(base=10,factor=2,original_context_length=64,mscale=-1)",
        "mscale must be a finite number of at least 0, got -1",
    ),
    refused(
        "yarn(base=10,factor=2,original_context_length=64,mscale=None)",
        "mscale must be a finite number of at least 0, got None",
    ),
    refused(
        "yarn(base=10,factor=2,original_context_length=64,mscale_all_dim='a')",
        "mscale_all_dim must be a finite number of at least 0, got 'a'",
    ),
    refused(
        "yarn(base=10,factor=2,original_context_length=64,mscale_all_dim=0,rotary_fraction=0.5)",
        "mscale_all_dim=0 must equal mscale=1.0 where rotary_fraction=0.5 is below 1: one "
        "head, one logit scale",
    ),
    refused(
        "llama3(base=500,factor=8,original_context_length=2048,low_freq_factor=0)",
        "low_freq_factor must be a finite number above 0, got 0",
    ),
    refused(
        "llama3(base=500,factor=8,original_context_length=2048,high_freq_factor=1.0)",
        "high_freq_factor=1.0 must be above low_freq_factor=1.0",
    ),
    refused(
        "longrope(base=1e4,pair_factors=(1.0,0.9),original_context_length=4096,target_context_length=8192)",
        "pair_factors must be a finite number of at least 1, got 0.9",
    ),
    refused(
        "longrope(base=1e4,pair_factors=4.0,original_context_length=4096,target_context_length=8192)",
        "pair_factors must be a tuple, got 4.0",
    ),
    refused(
        "longrope(base=1e4,pair_factors=(1.0,'x'),original_context_length=4096,target_context_length=8192)",
        "pair_factors must be a finite number of at least 1, got 'x'",
    ),
    refused(
        "longrope(base=1e4,pair_factors=(1.0,),original_context_length=1,target_context_length=8192)",
        "original_context_length must be a whole number of at least 2, got 1",
    ),
    refused(
        "longrope(base=1e4,pair_factors=(1.0,),original_context_length=4096,target_context_length=4095)",
        "target_context_length must be at least original_context_length=4096, got 4095",
    ),
    refused("method2(factor=0.5)", "factor must be a finite number of at least 1, got 0.5"),
    refused(
        "method2(raised_fraction=0)", "raised_fraction must be a finite number in (0, 1], got 0"
    ),
    refused(
        "method2(raised_fraction=1.5)", "raised_fraction must be a finite number in (0, 1], got 1.5"
    ),
    refused("method2(base=1)", "base must be a finite number above 1, got 1"),
    refused(
        "scaled_base(base=500,original_context_length=512,target_context_length=511)",
        "target_context_length must be at least original_context_length=512, got 511",
    ),
    refused(
        "scaled_base(base=500,original_context_length=512,target_context_length='long')",
        "target_context_length must be a whole number of at least 1, got 'long'",
    ),
    refused(
        "scaled_base(base=500,original_context_length=6,target_context_length=1024)",
        "original_context_length must be a whole number of at least 7, got 6",
    ),
    refused("explicit", "explicit needs one of values=(1.0,...) and file='NAME.npy'"),
    refused(
        "explicit(values=(1.0,),file='a.npy')",
        "explicit needs one of values=(1.0,...) and file='NAME.npy'",
    ),
    refused(
        "explicit(values=(1.0,-0.1))", "values must be a finite number of at least 0, got -0.1"
    ),
    refused("explicit(values=(1.0,'a'))", "values must be a finite number of at least 0, got 'a'"),
    refused(
        "explicit(values=(1.0,1e999))", "values must be a finite number of at least 0, got inf"
    ),
    refused("explicit(values=1.0)", "values must be a tuple, got 1.0"),
    refused(
        "explicit(file='missing.npy')",
        "file='missing.npy' cannot be read: FileNotFoundError(2, 'No such file or directory')",
    ),
    refused("explicit(file='own.txt')", "file='own.txt' must end in .npy or .json"),
    refused("explicit(file=3)", "file must be a string, got 3"),
    refused(
        "mine.py:Bent(strength=2)",
        "mine.py is code that the command line does not name, so it is not executed; if you trust "
        "that file, add --own mine.py",
    ),
    Row(
        lambda: rotary.parse_pattern("[nope,rope(base=10)"),
        "rotary pattern '[nope,rope(base=10)' lacks its closing ']'",
    ),
    Row(
        lambda: rotary.parse_pattern("[[[nope]]]"),
        "rotary pattern '[nope]' is not of the form [variant,[variant,variant]]: a list of "
        "layers, and of the heads of one",
    ),
    Row(lambda: Rope(base=float("nan")), "base must be a finite number above 1, got nan"),
    Row(lambda: Rope(base=10.0).inv_freq(7), "head_dim must be even and positive, got 7"),
    Row(
        lambda: Rope(base=10.0, rotary_fraction=0.1).inv_freq(16),
        "rotary_fraction=0.1 of head_dim=16 rotates no pair; use nope, or at least 0.125",
    ),
    Row(
        lambda: NtkAware(base=1e4, factor=4.0).inv_freq(2), "ntk_aware needs rotary_dim >= 4, got 2"
    ),
    Row(
        lambda: Explicit(values=(1.0, 0.3, 0.1, 0.0)).inv_freq(64),
        "Explicit has 4 frequencies; rotary_dim=64 needs 32, one per pair",
    ),
    Row(
        lambda: LONGROPE.inv_freq(32),
        "pair_factors has 8 numbers; rotary_dim=32 needs 16, one per pair",
    ),
    *(
        Row(lambda name=name: Explicit(file=name), says, files={name: content})
        for name, content, says in (
            ("a.json", "{", "file='a.json' cannot be read: JSONDecodeError({})"),
            ("b.json", '{"freqs": [1]}', "file='b.json' cannot be read: KeyError('inv_freq')"),
            (
                "c.json",
                "[[1.0, 0.5]]",
                "file='c.json': values must be a finite number of at least 0, got [1.0, 0.5]",
            ),
            ("d.json", "[]", "file='d.json' holds no numbers"),
            ("e.npy", "text", "file='e.npy' cannot be read: ValueError({})"),
        )
    ),
    refused("gone.py:Bent", "no file gone.py", given=lambda _: plugins.allow("gone.py")),
    own(
        "mine.py:Bent", "mine.py cannot be run: ZeroDivisionError('division by zero')", code="1 / 0"
    ),
    own("mine.py:Bend", "mine.py has no Rotary 'Bend'; it has ['Bent']", code=OWN),
    Row(
        lambda: rotary.record_frequencies(
            rotary.parse("mine.py:Bent(base=10,original_context_length=8)"), 8
        ),
        "mine.py:Bent(base=10,original_context_length=8) has frequencies that depend on a row's "
        "length, which a run cannot record; put a dynamic variant into model/rotary",
        files={"mine.py": OWN},
        given=lambda _: plugins.allow("mine.py"),
    ),
]
