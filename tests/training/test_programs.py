"""The options passed to a chip's compiler, and the line that describes them."""

import pytest

from training import programs

FLAG = "xla_jf_spmd_threshold_for_windowed_einsum_mib"


@pytest.mark.parametrize("kind", ["TPU v4", "TPU v5 lite", "TPU v5", "TPU v6 lite"])
def test_weights_are_gathered_before_products(kind, monkeypatch):
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    assert programs.compiler_options(kind) == {FLAG: "1000000"}
    assert (
        programs.describe_compiler_options(kind)
        == f"compiler: as with LIBTPU_INIT_ARGS=--{FLAG}=1000000"
    )


def test_what_the_user_sets_stays(monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--xla_enable_async_all_gather=true --{FLAG}=100")
    assert programs.compiler_options("TPU v6 lite") == {}
    assert programs.describe_compiler_options("TPU v6 lite") is None
