"""Dashboards, with their own readers: settings, metrics and results of the members of a sweep."""

import importlib
import time

import pytest

from ropewalk.experiment.metrics import open_tracker
from ropewalk.experiment.run import RunDirectory
from tests.models import tiny_config

pytestmark = pytest.mark.tracking
BASE = "model.rotary.base"


@pytest.fixture
def log(tmp_path):
    """Log two members of the sweep `bases` to a dashboard, and later their results."""

    def log_to(name):
        for base in (10, 30):
            run = RunDirectory(tmp_path / "bases" / f"base={base}")
            run.write_config(tiny_config(f"{BASE}={base}"), [])
            (run.path.parent / "sweep.json").touch()
            # The run is killed after step 3, and goes on from step 1.
            for after, steps in ((0, (1, 2, 3)), (1, (2,))):
                tracker = open_tracker(name, run, after)
                for step in steps:
                    tracker.log({"step": step, "loss": 3.0 / step})
                tracker.close()
                time.sleep(1.1)  # names of folders and files have the second
            tracker = open_tracker(name, run)
            tracker.log_results({"step": 2, "kv/64/l50": 2.0 * base})
            tracker.close()
        return tmp_path / "bases"

    return log_to


def test_tensorboard(log):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    folder = log("tensorboard")
    for base in (10, 30):
        reader = EventAccumulator(str(folder / f"base={base}" / "tensorboard"))
        reader.Reload()
        assert [(e.step, e.value) for e in reader.Scalars("loss")] == [(1, 3), (2, 1.5)]
        assert [(e.step, e.value) for e in reader.Scalars("kv/64/l50")] == [(2, 2 * base)]
        # Without a list of metrics of its own, the page HPARAMS offers all scalars.
        (content,) = reader.PluginTagToContent("hparams").values()
        settings = HParamsPluginData.FromString(content).session_start_info.hparams
        assert settings[BASE].number_value == base


def test_wandb(log, monkeypatch):
    """In wandb's offline files a name, a tag, a length and the value as JSON follow one another."""
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    folder = log("wandb")
    importlib.import_module("wandb").teardown()  # waits for the process that writes
    for base in (10, 30):
        files = folder.glob(f"base={base}/wandb/offline-run-*/*.wandb")
        content = b"".join(file.read_bytes() for file in files)
        assert b"bases" in content and f"base={base}".encode() in content
        for name, value in ((BASE, f"{base}.0"), ("loss", "1.5"), ("kv/64/l50", f"{2 * base}.0")):
            assert b"%b\x82\x01%c%b" % (name.encode(), len(value), value.encode()) in content
