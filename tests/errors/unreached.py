"""Places that raise ValueError and that no row of the table reaches, each with the reason."""

UNREACHED: dict[str, str] = {
    'interop/lm_eval.py: f"unknown task {wrong!r}; {nearest(wrong, manager.all_tasks)}"': (
        "needs lm-evaluation-harness: tests/interop/test_lm_eval.py"
    ),
    "data/redpajama/in_parallel.py: problem": (
        "needs apache-beam: tests/data/test_redpajama_beam.py"
    ),
    "interop/check.py: "
    '"transformers turns pairs by other angles than config.json was written for: "': (
        "needs transformers: tests/interop/test_export.py"
    ),
}
