"""ONNX files of policies, for use without this project and without torch.

    data = to_onnx(policy, frame_skip=4)                   # bytes of the file
    policy = OnnxPolicy.load(Path("agent.onnx"))
    actions = policy.act(obs, deterministic=True)          # raw observations {key: array [N, *shape]}
    logits, values, greedy = policy.compute(obs)

    inputs     one input for each observation key, raw, with the dtype and shape [N, *shape] of the layout;
               "action_mask" bool[N, 6], True for allowed actions (training allows all actions)
    outputs    "logits" float32[N, 6]; "value" float32[N]; "action" int64[N], the most probable allowed action

The normaliser is part of the network.  The metadata of the file describe the inputs as JSON (``NetworkMetadata``), so a
network from a plug-in can be loaded without the plug-in.
"""

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nppsim.actions import ACTION_NAMES, FRAMES_PER_SECOND, NUM_ACTIONS
from nppsim.errors import UserError, import_optional
from nppsim.io.reading import from_plain, parse_json, read_bytes
from nppsim.observe import layout
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.stacking import NO_STACKS, Stacking
from rl.policy.networks import check_batch
from rl.policy.policy import NppPolicy, sample_actions

METADATA = "nppsim"
FORMAT_VERSION = 2
MASK = "action_mask"
OUTPUTS = ("logits", "value", "action")
OPSET = 18
SUFFIX = ".onnx"
_EXAMPLES = 2  # batch size of the traced example; a batch size of 1 would become a constant
_MAX_BYTES = 1 << 30
_REMEDY = "give an ONNX file that scripts/export.py has written"
_TYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(bool)": "bool"}


class ExportError(UserError, ValueError):
    """A policy that cannot be exported, or an ONNX file that this project has not written."""


@dataclass(frozen=True)
class NetworkMetadata:
    """Metadata of an ONNX file.

    architecture: name of the architecture.
    observations: observation keys in canonical order.
    layout: fingerprint of the observation layout.
    stacking: suffix of the architecture's name for frame stacking; "" without stacking.
    frame_skip: frames per decision during training.
    foresight: suffix of the architecture's name for settings of look-ahead; "" for the defaults.
    shielded: True if the network lowers the logits of deadly actions.
    actions: names of the actions.
    """

    architecture: str
    observations: tuple[str, ...]
    layout: str
    stacking: str
    frame_skip: int
    foresight: str
    shielded: bool
    actions: tuple[str, ...] = ACTION_NAMES
    format_version: int = FORMAT_VERSION


class _Exported(nn.Module):
    """Module whose inputs are the observations of a policy in the order of its keys, then the action mask."""

    def __init__(self, policy: NppPolicy):
        super().__init__()
        self.policy = policy

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        *observed, mask = tensors
        logits, values = self.policy.logits_and_values(dict(zip(self.policy.observations, observed, strict=True)))
        return logits, values, logits.masked_fill(~mask, -torch.inf).argmax(dim=1)


def check_exportable(policy: NppPolicy) -> None:
    """Raise ExportError for a graph network, a hierarchical policy or a recurrent policy."""
    problem = None
    if policy.features_extractor.graph:
        problem = "reads the graph of a level from the simulator, which ONNX cannot: export a network without a graph"
    if policy.high_level:
        problem = "has a subtask as state, and ONNX export is stateless: export a network without +subtasks"
    if policy.memory:
        problem = "has a recurrent state, and ONNX export is stateless: export a network without +gru"
    if problem:
        raise ExportError(f"{policy.architecture} {problem}")


def to_onnx(policy: NppPolicy, *, frame_skip: int) -> bytes:
    """Return the content of an ONNX file; it computes in float32, whatever the precision of the policy.

    frame_skip: frames per decision during training.
    Raises ExportError if ONNX cannot express the network or the policy has no statistics, and MissingPackageError
    without the extra ``onnx``.
    """
    import_optional("onnxscript", "onnx")
    check_exportable(policy)
    if policy.statistics is None:
        raise ExportError(f"{policy.architecture} has no observation statistics yet: train it before it is exported")
    metadata = metadata_of(policy, frame_skip)
    proto = _traced(policy)
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(asdict(metadata))
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def metadata_of(policy: NppPolicy, frame_skip: int) -> NetworkMetadata:
    """Return the metadata for the file of a policy."""
    keys, foresight = policy.observations, policy.foresight.name
    of_layout = layout.fingerprint(keys, foresight)
    stacking = policy.stacking.name
    return NetworkMetadata(policy.architecture, keys, of_layout, stacking, frame_skip, foresight, policy.shielded)


def _traced(policy: NppPolicy) -> Any:
    """Trace the policy to an onnx.ModelProto."""
    tensors = [
        torch.zeros((_EXAMPLES, *policy.stacking.shape(key)), dtype=getattr(torch, layout.SPECS[key].dtype))
        for key in policy.observations
    ]
    tensors.append(torch.ones(_EXAMPLES, NUM_ACTIONS, dtype=torch.bool))
    rows = torch.export.Dim("batch", min=1)
    precision, device, training = policy.precision, policy.device, policy.training
    policy.precision = "float32"
    policy.to("cpu").eval()
    try:
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # hides warnings about internals of torch
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                _Exported(policy),
                tuple(tensors),
                input_names=[*policy.observations, MASK],
                output_names=list(OUTPUTS),
                dynamic_shapes=(tuple({0: rows} for _ in tensors),),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ExportError(
            f"{policy.architecture} cannot be expressed in ONNX ({first[:200]}): a custom network may only use what "
            "torch can export (no numpy, no loops over the batch), see docs/search_and_export.md"
        ) from error
    finally:
        policy.precision = precision
        policy.to(device).train(training)
    assert program is not None
    proto = program.model_proto
    if any(tensor.type.tensor_type.shape.dim[0].dim_value for tensor in proto.graph.input):
        raise ExportError(
            f"{policy.architecture} can be expressed in ONNX only for a fixed number of observations: use shape[0] of a "
            "tensor instead of len(), and do not compare it with a number (docs/search_and_export.md)"
        )
    return proto


def signature(metadata: NetworkMetadata, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, object]:
    """Return dtype and shape (without batch axis) of each input and output, by name."""
    inputs = {key: {"dtype": layout.SPECS[key].dtype, "shape": list(shapes[key])} for key in metadata.observations}
    inputs[MASK] = {"dtype": "bool", "shape": [NUM_ACTIONS]}
    outputs = zip(OUTPUTS, (("float32", [NUM_ACTIONS]), ("float32", []), ("int64", [])), strict=True)
    return {"inputs": inputs, "outputs": {name: {"dtype": kind, "shape": shape} for name, (kind, shape) in outputs}}


class OnnxPolicy:
    """Inference with an ONNX file on the CPU.

    data: content of the file.
    file_name: name of the file, for messages.
    metadata: metadata of the file.
    Raises ExportError for a file that is damaged, that this project has not written, or that has another observation layout.
    Raises MissingPackageError without the extra ``onnx``.
    """

    def __init__(self, data: bytes, file_name: object = "the network"):
        self._made_of = data, file_name
        self._name = file_name
        _check_self_contained(data, file_name)
        ort = import_runtime()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
        options.log_severity_level = 4  # no log messages; errors are raised
        try:
            self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"], enable_fallback=0)
            metadata = self._session.get_modelmeta().custom_metadata_map.get(METADATA)
            inputs, outputs = self._session.get_inputs(), [output.name for output in self._session.get_outputs()]
            signature = {tensor.name: (_TYPES.get(tensor.type), tuple(tensor.shape[1:])) for tensor in inputs}
        except _errors_of(ort) as error:
            first = next(iter(str(error).splitlines()), "")
            raise ExportError(f"{file_name}: no ONNX file, or damaged ({first[:200]}): {_REMEDY}") from error
        self.metadata, self.stacking, self.foresight = _metadata(metadata, file_name)
        self.observations, self.shielded = self.metadata.observations, self.metadata.shielded
        wanted = {key: (layout.SPECS[key].dtype, self.stacking.shape(key)) for key in self.observations}
        wanted[MASK] = ("bool", (NUM_ACTIONS,))
        if signature != wanted or outputs != list(OUTPUTS):
            raise ExportError(f"{file_name}: its inputs or outputs differ from its metadata: {_REMEDY}")
        self.compute(
            {key: np.zeros((_EXAMPLES, *shape), dtype) for key, (dtype, shape) in wanted.items() if key != MASK}
        )

    @classmethod
    def load(cls, path: Path) -> "OnnxPolicy":
        """Load a file.  Raises ExportError if it cannot be read."""
        return cls(read_bytes(path, ExportError, _MAX_BYTES, _REMEDY), path)

    def __reduce__(self) -> tuple[type["OnnxPolicy"], tuple[bytes, object]]:
        """Pickle the content of the file; another process creates its own session."""
        return type(self), self._made_of

    def compute(
        self, obs: Mapping[str, np.ndarray], mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return logits float32[N, 6], values float32[N] and deterministic actions int64[N].

        obs: raw observations, {key: array [N, *shape]}.
        mask: bool[N, 6], True for allowed actions; None: all actions are allowed.
        Raises ObservationError if a key is missing or has another shape or dtype, and ExportError if the outputs are not of
        these shapes and dtypes, or actions are not in 0..5.
        """
        check_batch(obs, self.observations, self.stacking)
        rows = len(obs[self.observations[0]])
        inputs = {key: obs[key].reshape(rows, *self.stacking.shape(key)) for key in self.observations}
        inputs[MASK] = np.ones((rows, NUM_ACTIONS), bool) if mask is None else mask
        try:
            logits, values, actions = self._session.run(list(OUTPUTS), inputs)
        except _errors_of(import_runtime()) as error:
            first = next(iter(str(error).splitlines()), "")
            raise ExportError(f"{self._name}: cannot be computed ({first[:200]}): {_REMEDY}") from error
        types = [(array.dtype.name, array.shape) for array in (logits, values, actions)]
        if types != [("float32", (rows, NUM_ACTIONS)), ("float32", (rows,)), ("int64", (rows,))]:
            raise ExportError(f"{self._name}: its outputs for {rows} observations are {types}: {_REMEDY}")
        if actions.min(initial=0) < 0 or actions.max(initial=0) >= NUM_ACTIONS:
            raise ExportError(f"{self._name}: its actions are not in 0..{NUM_ACTIONS - 1}: {_REMEDY}")
        return logits, values, actions

    def act(
        self, obs: Mapping[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None = None
    ) -> np.ndarray:
        """Return actions int64[N], as ``NppPolicy.act`` does; an equal ``rng`` gives equal samples."""
        logits, _, greedy = self.compute(obs)
        return greedy if deterministic else sample_actions(torch.from_numpy(logits), rng).numpy()


def import_runtime() -> Any:
    """Import onnxruntime without telemetry, which starts a thread and connects to a server (onnxruntime 1.32)."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return import_optional("onnxruntime", "onnx")


def _check_self_contained(data: bytes, file_name: object) -> None:
    """Raise ExportError for a network with tensors in other files, which onnxruntime would read, also for bytes."""
    onnx = import_optional("onnx", "onnx")
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's errors have no public base class
        raise ExportError(f"{file_name}: no ONNX file, or damaged ({error}): {_REMEDY}") from error
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data for tensor in _tensors_of(model)):
        raise ExportError(f"{file_name}: reads tensors from other files, which is refused: {_REMEDY}")


def _tensors_of(message: Any) -> Iterator[Any]:
    """Yield the tensors anywhere in a protobuf message, e.g. in attributes, subgraphs and functions."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else (value,):
                if field.message_type.name == "TensorProto":
                    yield item
                yield from _tensors_of(item)


def is_onnx(path: Path) -> bool:
    """Return True if the file name has the suffix of ONNX files."""
    return path.suffix.lower() == SUFFIX


def _errors_of(ort: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions of onnxruntime for invalid files; they have no common base class."""
    members = vars(ort.capi.onnxruntime_pybind11_state).values()
    return (
        *(member for member in members if isinstance(member, type) and issubclass(member, Exception)),
        UnicodeDecodeError,
    )


def _metadata(text: str | None, file_name: object) -> tuple[NetworkMetadata, Stacking, Foresight]:
    """Parse the metadata.  Raises ExportError for damaged metadata, another format version or observation layout."""
    if text is None:
        raise ExportError(f"{file_name}: an ONNX file, but not of this project: {_REMEDY}")
    fields = parse_json(text.encode(), f"metadata of {file_name}", ExportError, _REMEDY)
    version = fields.get("format_version") if isinstance(fields, dict) else None
    if version != FORMAT_VERSION:
        raise ExportError(
            f"{file_name}: export format {version}, this version of the project reads {FORMAT_VERSION}: export the "
            "checkpoint again"
        )
    try:
        metadata: NetworkMetadata = from_plain(NetworkMetadata, fields)
        stacking = Stacking.named(metadata.stacking) if metadata.stacking else NO_STACKS
        foresight = Foresight.named(metadata.foresight) if metadata.foresight else FORESIGHT
        if not 1 <= metadata.frame_skip <= FRAMES_PER_SECOND:
            raise ValueError(f"frame_skip is {metadata.frame_skip}")
        if metadata.observations != layout.observation_keys(metadata.observations):
            raise ValueError("the order of the observations is not that of the layout")
    except (KeyError, ValueError) as error:
        raise ExportError(f"{file_name}: its metadata are damaged ({error}): {_REMEDY}") from error
    if metadata.layout != (current := layout.fingerprint(metadata.observations, metadata.foresight)):
        raise ExportError(
            f"{file_name}: reads observation layout {metadata.layout} ({', '.join(metadata.observations)}), this version of "
            f"the project has {current}: use the version that wrote it, or export again"
        )
    return metadata, stacking, foresight
