"""Mutations of curves, checkpoints, exports, uploads, searches, generated levels and settings."""

from torch.utils.tensorboard import SummaryWriter

from nppsim.observe import layout
from rl.policy import checkpoint
from rl.ppo import logs
from tests.mutation.mutation import mutation

mutation("scalars are not written", "tests/rl/test_events.py").set(
    SummaryWriter, "add_scalar", lambda writer, tag, value, step: None
)


@mutation("scalars are written to another folder", "tests/rl/training/test_monitor.py").wrap(logs, "open_events")
def _(original, folder, purge_step=None):
    return original(f"{folder}_of_another_run", purge_step)


mutation("a checkpoint of another observation layout", "tests/rl/policy/test_onnx.py").set(
    layout, "VERSION", layout.VERSION + 1
)


mutation("a checkpoint of another format", "tests/rl/policy/test_onnx.py").set(
    checkpoint, "FORMAT_VERSION", checkpoint.FORMAT_VERSION + 1
)
