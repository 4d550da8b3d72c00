"""Mutations of curves, checkpoints, exports, uploads, searches, generated levels and settings."""

from nppsim.observe import layout
from rl.events import EventWriter
from rl.policy import checkpoint
from tests.mutation.mutation import mutation

mutation("scalars are not written", "tests/rl/test_events.py").set(
    EventWriter, "add_scalar", lambda writer, tag, value, step: None
)


@mutation("scalars are written to another folder", "tests/rl/training/test_monitor.py").wrap(EventWriter, "__init__")
def _(original, writer, folder):
    original(writer, f"{folder}_of_another_run" if "tensorboard" in str(folder) else folder)


mutation("a checkpoint of another observation layout", "tests/rl/policy/test_onnx.py").set(
    layout, "VERSION", layout.VERSION + 1
)


mutation("a checkpoint of another format", "tests/rl/policy/test_onnx.py").set(
    checkpoint, "FORMAT_VERSION", checkpoint.FORMAT_VERSION + 1
)
