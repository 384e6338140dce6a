"""torch and transformers, which belong to an extra, for the benchmarks that run beside them."""

# pyright: reportMissingImports=false
import jax


def say_versions(benchmark: str) -> None:
    """Print the versions that run.

    Raises:
        ValueError: one of them is not installed.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ValueError(
            f"{benchmark} needs {error.name}: run `make test-hf` once, or "
            "pip install torch==2.13.0 transformers==5.23.0 (a CPU build of torch will do)"
        ) from None
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, jax {jax.__version__}"
    )
