"""Domains: parts of the training text with a token store each, so that rows can be drawn by weight.

    data.weights=[[books,2],[code,1]]               two rows of books for one of code
    data.long_fraction=0.7 data.long_tokens=4096    7 of 10 rows from documents of 4096 tokens or
                                                    more; with weights, 7 of 10 of each corpus

A corpus is the subset that a document names (`red_pajama_subset`), or else the folder of its file
in `data.path`. A row comes from one domain, so rows of long documents are seldom cut. Weights
and fractions do not change the prepared text: only the names of the corpora and `long_tokens` do.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.data import packing
from ropewalk.data.config import DataConfig
from ropewalk.data.source import SUBSETS, Source, by_corpus, subset_name
from ropewalk.data.store import TokenStore
from ropewalk.utils.manifest import digest, read_manifest
from ropewalk.utils.messages import quoted


class Domain(NamedTuple):
    """Text that rows are drawn from.

    Attributes:
      name: description for messages.
      share: of the rows of text, in (0, 1].
      store: the documents.
    """

    name: str
    share: float
    store: TokenStore


def check(config: DataConfig, source: Source) -> None:
    """Check weights and `long_fraction` before any document is read.

    Raises:
      ValueError: if there is no text, a corpus is unknown or named twice, or one has no weight.
    """
    if config.long_fraction is not None and not source.has_text:
        raise ValueError(f"data.long_fraction: data.source={config.source} has no text")
    if not config.weights:
        return
    corpora = source.corpora()
    known = corpora.keys() - {""}
    if not known or {*map(subset_name, known)} & {*SUBSETS}:  # documents name RedPajama's subsets
        known |= source.subsets()
    source.check_names("data.weights", config.weights, known)
    weights = by_corpus(config.weights)
    left_out = {name for name, share in by_corpus(config.subset_shares).items() if not share}
    for name in sorted(left_out & weights.keys()):
        raise ValueError(
            f"data.weights: data.subset_shares leaves out {quoted(name)}; name it once"
        )
    for label, file in corpora.items():
        if subset_name(label) not in weights.keys() | left_out:
            raise ValueError(f"{file}: {_no_weight(label)}")


def _no_weight(corpus: str) -> str:
    """Describe the mistake of a document whose corpus has no weight."""
    if not corpus:
        return "belongs to no corpus of data.weights; put it into a folder of data.path"
    return (
        f"data.weights has none for the corpus {quoted(corpus)}; add [{corpus},WEIGHT], or leave "
        f"the corpus out with data.subset_shares=[[{corpus},0]]"
    )


def settings(config: DataConfig) -> dict[str, Any]:
    """Return what decides the domains of prepared text; {} without weights and long_fraction."""
    if not config.weights and config.long_fraction is None:
        return {}
    is_split = config.long_fraction is not None
    long_tokens = (config.long_tokens or config.context_length) if is_split else None
    return {"strata": {"corpora": sorted(by_corpus(config.weights)), "long_tokens": long_tokens}}


def _long_tokens(prepared: dict[str, Any]) -> int | None:
    return prepared.get("strata", {}).get("long_tokens")


def folders(prepared: dict[str, Any]) -> dict[tuple[str, bool], str]:
    """Return the folder of each corpus ("" without weights), and of its long documents.

    Args:
      prepared: settings of the prepared folder.
    """
    if "strata" not in prepared:  # the name of domains in files
        return {("", False): "train"}
    return {
        (corpus, is_long): f"train-{number:02d}{'-long' * is_long}"
        for number, corpus in enumerate(prepared["strata"]["corpora"] or [""])
        for is_long in (False, True)[: 2 if _long_tokens(prepared) else 1]
    }


def domain_of(prepared: dict[str, Any], subset: str, num_ids: int) -> tuple[str, bool]:
    """Return the key in `folders` of a document of training, by our name of its subset.

    Raises:
      ValueError: if its corpus has no weight.
    """
    corpora = prepared.get("strata", {}).get("corpora")
    corpus = subset if corpora else ""
    if corpora and corpus not in corpora:
        raise ValueError(_no_weight(corpus))
    long_tokens = _long_tokens(prepared)
    return corpus, long_tokens is not None and num_ids >= long_tokens


def open_domains(config: DataConfig, folder: Path) -> list[Domain]:
    """Return the domains of a prepared folder that have text, with their shares of the rows.

    A corpus without long documents, or with long ones only, gives all its rows from what it has.

    Raises:
      ValueError: if a corpus has no text, or no document is long.
    """
    prepared = read_manifest(folder / "prepare.json")["settings"]
    stores = {key: TokenStore(folder / name) for key, name in folders(prepared).items()}
    long_tokens, fraction = _long_tokens(prepared), config.long_fraction
    if long_tokens and fraction and not any(stores[key].num_tokens for key in stores if key[1]):
        raise ValueError(
            f"data.long_fraction: no document has {long_tokens:,} tokens; use a lower "
            "data.long_tokens"
        )
    weights = by_corpus(config.weights) or {"": 1.0}
    domains = []
    for corpus, weight in weights.items():
        parts = [key for key in stores if key[0] == corpus and stores[key].num_tokens]
        if not parts:
            raise ValueError(f"data.weights: no document of training belongs to {quoted(corpus)}")
        for key in parts:
            share = weight / sum(weights.values())
            if len(parts) > 1 and fraction is not None:
                share *= fraction if key[1] else 1 - fraction
            side = "from" if key[1] else "below"
            lengths = f"{side} {long_tokens:,} tokens" if long_tokens else ""
            name = ", ".join(filter(None, (corpus or "the text", lengths)))
            domains += [Domain(name, share, stores[key])] if share else []
    return domains


def fingerprint(domains: Sequence[Domain]) -> str:
    """Return a digest of the ids of all domains, in order, and of the rule that makes rows."""
    return digest([packing.VERSION, *(domain.store.fingerprint for domain in domains)])
