"""Policy loaded from an ONNX file.

    policy = OnnxPolicy.load("agent.onnx")
    actions = policy.act(obs, deterministic=True)          # raw observations {key: array [N, *shape]}
    logits, values, greedy = policy.compute(obs)

The file describes its observations (``rl.policy.export.Facts``), so a plugin's network needs no plugin here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.actions import FRAMES_PER_SECOND, NUM_ACTIONS
from nppsim.errors import needed
from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.reading import read_bytes
from rl.policy.export import FORMAT_VERSION, MASK, METADATA, OUTPUTS, SUFFIX, ExportError, Facts
from rl.policy.networks import check_batch
from rl.policy.policy import sample_actions

_MAX_BYTES = 1 << 30
_REMEDY = "give an ONNX file that scripts/export.py has written"
_TYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(bool)": "bool"}


class OnnxPolicy:
    """Inference with an ONNX file on the CPU.

    data: the file.
    place: its name, for errors.
    facts: metadata; stacking: of the observations.
    ExportError: damaged, not of this project, or with another observation layout.
    MissingPackageError without the extra ``onnx``.
    """

    def __init__(self, data: bytes, place: object = "the network"):
        self._made_of = data, place
        ort = needed("onnxruntime", "onnx")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
        options.log_severity_level = 4  # errors are raised
        try:  # from bytes: prevents references to other files
            self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"], enable_fallback=0)
            metadata = self._session.get_modelmeta().custom_metadata_map.get(METADATA)
            inputs, outputs = self._session.get_inputs(), [one.name for one in self._session.get_outputs()]
            found = {one.name: (_TYPES.get(one.type), tuple(one.shape[1:])) for one in inputs}
        except _errors_of(ort) as error:
            first = next(iter(str(error).splitlines()), "")
            raise ExportError(f"{place}: no ONNX file, or damaged ({first[:200]}): {_REMEDY}") from error
        self.facts, self.stacking = _facts(metadata, place)
        self.observations = self.facts.observations
        wanted = {key: (layout.SPECS[key].dtype, self.stacking.shape(key)) for key in self.observations}
        wanted[MASK] = ("bool", (NUM_ACTIONS,))
        if found != wanted or outputs != list(OUTPUTS):
            raise ExportError(f"{place}: its inputs or outputs differ from its metadata: {_REMEDY}")

    @classmethod
    def load(cls, path: Path) -> "OnnxPolicy":
        """Load a file; ExportError if it cannot be read."""
        return cls(read_bytes(path, ExportError, _MAX_BYTES, _REMEDY), path)

    def __reduce__(self) -> tuple[type["OnnxPolicy"], tuple[bytes, object]]:
        """Pickle as file content: other processes create their own session."""
        return type(self), self._made_of

    def compute(
        self, obs: Mapping[str, np.ndarray], mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logits float32[N, 6], values float32[N] and the deterministic actions int64[N], for raw observations [N, *shape].

        mask: bool[N, 6], allowed actions; None: all.
        ObservationError: a key is missing, or has another shape or dtype.
        """
        check_batch(obs, self.observations, self.stacking)
        rows = len(obs[self.observations[0]])
        given = {key: obs[key].reshape(rows, *self.stacking.shape(key)) for key in self.observations}
        given[MASK] = np.ones((rows, NUM_ACTIONS), bool) if mask is None else mask
        logits, values, actions = self._session.run(list(OUTPUTS), given)
        return logits, values, actions

    def act(
        self, obs: Mapping[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None = None
    ) -> np.ndarray:
        """Actions int64[N]; as ``NppPolicy.act``, and with the same ``rng`` the same samples."""
        logits, _, greedy = self.compute(obs)
        return greedy if deterministic else sample_actions(torch.from_numpy(logits), rng).numpy()


def is_onnx(path: Path) -> bool:
    """Test the file name for the ONNX suffix."""
    return path.suffix.lower() == SUFFIX


def _errors_of(ort: Any) -> tuple[type[Exception], ...]:
    """Exceptions of onnxruntime for files; they have no common base class."""
    state = ort.capi.onnxruntime_pybind11_state
    names = (
        "Fail",
        "InvalidArgument",
        "InvalidGraph",
        "InvalidProtobuf",
        "NoModel",
        "NotImplemented",
        "RuntimeException",
    )
    return (*(getattr(state, name) for name in names), UnicodeDecodeError)


def _facts(text: str | None, place: object) -> tuple[Facts, Stacking]:
    """Parse the metadata; ExportError for another version or damage."""
    if text is None:
        raise ExportError(f"{place}: an ONNX file, but not of this project: {_REMEDY}")
    try:
        fields = json.loads(text)
        if fields["format_version"] != FORMAT_VERSION:
            raise ExportError(
                f"{place}: export format {fields['format_version']}, this version of the project reads {FORMAT_VERSION}: "
                f"export the checkpoint again"
            )
        facts = Facts(**{**fields, "observations": tuple(fields["observations"]), "actions": tuple(fields["actions"])})
        stacking = Stacking.named(facts.stacking) if facts.stacking else NO_STACKS
        known = facts.observations == layout.observation_keys(facts.observations)
        if not (known and isinstance(facts.architecture, str) and 1 <= facts.frame_skip <= FRAMES_PER_SECOND):
            raise ValueError("impossible values")
    except ExportError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ExportError(f"{place}: its metadata are damaged ({type(error).__name__}: {error}): {_REMEDY}") from error
    if facts.layout != layout.fingerprint(facts.observations):
        raise ExportError(
            f"{place}: reads observation layout {facts.layout} ({', '.join(facts.observations)}), this version of the "
            f"project has {layout.fingerprint(facts.observations)}: use the version that wrote it, or export again"
        )
    return facts, stacking
