"""Places that raise ValueError and that no row of the table reaches, each with the reason."""

UNREACHED: dict[str, str] = {
    "data/redpajama/beam.py: problem": "needs apache-beam: tests/data/test_redpajama_beam.py",
    "interop/check.py: "
    '"transformers turns pairs by other angles than config.json was written for: "': (
        "needs transformers: tests/interop/test_export.py"
    ),
}
