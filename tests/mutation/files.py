"""Mutations of curves, checkpoints, exports, uploads, searches, generated levels and settings."""

from torch.utils.tensorboard import SummaryWriter

from nppsim.observe import layout
from rl.policy import checkpoint
from rl.ppo import logs
from tests.mutation.mutation import Patch, mutation


@mutation("scalars are not written", tests=("tests/rl/test_events.py",))
def _(patch: Patch) -> None:
    patch.set(SummaryWriter, "add_scalar", lambda writer, tag, value, step: None)


@mutation("scalars are written to another folder", tests=("tests/rl/training/test_monitor.py",))
def _(patch: Patch) -> None:
    def changed(original, folder, purge_step=None):
        return original(f"{folder}_of_another_run", purge_step)

    patch.wrap(logs, "open_events", changed)


@mutation("a checkpoint of another observation layout", tests=("tests/rl/policy/test_onnx.py",))
def _(patch: Patch) -> None:
    patch.set(layout, "VERSION", layout.VERSION + 1)


@mutation("a checkpoint of another format", tests=("tests/rl/policy/test_onnx.py",))
def _(patch: Patch) -> None:
    patch.set(checkpoint, "FORMAT_VERSION", checkpoint.FORMAT_VERSION + 1)
