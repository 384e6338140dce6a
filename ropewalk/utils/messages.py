"""Error messages of one line; long values in them are cut in the middle."""

import difflib
import functools
import math
import re
import sys
from collections.abc import Iterable

LONGEST = 300  # characters of an error


def one_line(text: str, limit: int = LONGEST) -> str:
    """Return `text` as one line of at most `limit` characters; cut a longer one in the middle."""
    if len(text) > 2 * limit:
        text = f"{text[:limit]}{text[-limit:]}"
    line = " ".join(text.splitlines())
    line = "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in line
    )
    if len(line) <= limit:
        return line
    # Keep the end, which says what to do.
    end = (limit - 5) * 2 // 5
    return f"{line[: limit - 5 - end]} ... {line[-end:]}"


# Characters that a terminal or browser obeys, but newlines and tabs: control characters, those that
# reverse the order of text, and surrogates, which cannot be encoded.
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text for a terminal or a page: control characters become escapes such as `\\x1b`."""
    return _OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


def check_unicode(text: str, source: str) -> None:
    """Raise ValueError, naming the source, for a lone surrogate, as Python makes of bad UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{source} is not Unicode: character {error.start + 1} is no valid UTF-8; convert the "
            "text"
        ) from None


def quoted(value: object, limit: int = 60) -> str:
    """Return the `repr` of any value as `one_line`."""
    try:
        return one_line(repr(value), limit)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a recursive list
        return f"a value of the type {type(value).__name__}"


@functools.cache
def print_note(_where: object, text: str) -> None:
    """Print a note about a file or folder, once in a process."""
    print(f"note: {printable(text)}", file=sys.stderr)


def counted(number: int, plural: str) -> str:
    """Return a number with its noun: `1 document`, `1,024 documents`."""
    return f"{number:,} {plural.removesuffix('s') if number == 1 else plural}"


def rounded(number: float) -> str:
    """Return a number with three significant digits, or a large one without decimals: 1,235."""
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Return a time as text, in one unit."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{max(1, seconds):.0f} s"


def size(num_bytes: float) -> str:
    """Return bytes in the largest fitting unit, up to TiB."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    power = min(4, int(math.log2(num_bytes) / 10))
    return f"{num_bytes / 1024**power:.2f} {'KMGT'[power - 1]}iB"


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return `did you mean X? (valid: ...)`, or `valid: ...` if no name is similar.

    A long list shows only the most similar names.
    """
    valid, name = sorted(map(str, valid)), name[:_LISTED]
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.4)
    listed = ", ".join(valid)
    if len(listed) > _LISTED:
        alike = difflib.get_close_matches(name, valid, n=len(valid), cutoff=0)
        shown = ", ".join(alike)[:_LISTED].rpartition(",")[0]
        listed = f"{shown} and {len(valid) - shown.count(',') - 1} more"
    return f"did you mean {close[0]!r}? (valid: {listed})" if close else f"valid: {listed}"


_LISTED = 130  # characters of names
