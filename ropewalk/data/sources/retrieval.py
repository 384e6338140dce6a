"""Retrieval documents only, which are generated from (seed, index)."""

from ropewalk.data.sources.local import Local


class Retrieval(Local):
    """No text: rows are retrieval documents. Only a tokenizer is prepared, on the text of local."""

    has_text = False
    differs_by_machine = False

    def identity(self) -> dict[str, int]:
        """Return nothing: no document is held out."""
        return {}
