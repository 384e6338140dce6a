"""The options passed to a chip's compiler."""

from ropewalk.training import programs

FLAG = "xla_jf_spmd_threshold_for_windowed_einsum_mib"


def test_what_the_user_sets_stays(monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--xla_enable_async_all_gather=true --{FLAG}=100")
    assert programs.compiler_options("TPU v6 lite") == {}
