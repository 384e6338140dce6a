"""Sources of text, one file each; `data.source` names the file.

To add a source, add a file here with one subclass of `data.source.Source`.
"""

import functools
import pkgutil
import sys

from ropewalk.data.source import Source
from ropewalk.utils.plugins import classes_in


def names() -> list[str]:
    """Return the names of the sources without importing them."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__))


@functools.cache
def source_class(name: str) -> type[Source]:
    """Return the class of the source that `data.source` names."""
    return classes_in(sys.modules[__name__], Source)[name]


def reading_path() -> list[str]:
    """Return the names of the sources that read `data.path`."""
    return [name for name in names() if source_class(name).needs_path]
