"""Export of a policy to ONNX, for use without this project and without torch.

    data = to_onnx(policy, frame_skip=4)     # bytes of the file
    inputs     raw observations, one input for each key, dtype and shape [N, *shape] of the layout;
               "action_mask" bool[N, 6], allowed actions; training allows all
    outputs    "logits" float32[N, 6], "value" float32[N], "action" int64[N], the most probable allowed action

The normaliser is part of the network.  The file's metadata under ``METADATA`` describe the inputs as JSON (``Facts``);
``rl.policy.onnx_policy`` reads them.
"""

import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from nppsim.actions import ACTION_NAMES, NUM_ACTIONS
from nppsim.errors import UserError, needed
from nppsim.observe import layout
from rl.policy.policy import NppPolicy

METADATA = "nppsim"
FORMAT_VERSION = 1
MASK = "action_mask"
OUTPUTS = ("logits", "value", "action")
OPSET = 18
SUFFIX = ".onnx"
_EXAMPLES = 2  # batch size of the traced example; 1 would become a constant


class ExportError(UserError, ValueError):
    """Policy that cannot be exported, or ONNX file that is not of this project."""


@dataclass(frozen=True)
class Facts:
    """Metadata of an ONNX file.

    architecture: name of the network.
    observations: its inputs, in canonical order.
    layout: fingerprint of the observation layout.
    stacking: suffix of the architecture's name for stacked frames; "" for single frames.
    frame_skip: frames per decision in training.
    actions: names of the actions.
    """

    architecture: str
    observations: tuple[str, ...]
    layout: str
    stacking: str
    frame_skip: int
    actions: tuple[str, ...] = ACTION_NAMES
    format_version: int = FORMAT_VERSION


class _Exported(nn.Module):
    """The policy as a function of tensors: observations in the order of its keys, then the mask."""

    def __init__(self, policy: NppPolicy):
        super().__init__()
        self.policy = policy

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        *observed, mask = tensors
        logits, values = self.policy.logits_and_values(dict(zip(self.policy.observations, observed, strict=True)))
        return logits, values, logits.masked_fill(~mask, -torch.inf).argmax(dim=1)


def check_exportable(policy: NppPolicy) -> None:
    """Raise ExportError for graph networks, subtasks and recurrent policies."""
    if policy.features_extractor.graph:
        raise ExportError(
            f"{policy.architecture} reads the graph of a level, which it looks up in the simulator of its own process; "
            "ONNX holds only what is computed from numbers: export a network without a graph, such as "
            "mlp_baseline or vision_free_foresight"
        )
    if policy.commander:
        raise ExportError(
            f"{policy.architecture} has a subtask as state, and ONNX export is stateless: export a network without +subtasks"
        )
    if policy.memory:
        raise ExportError(
            f"{policy.architecture} has a recurrent state, and ONNX export is stateless: export a network without +gru"
        )


def example(policy: NppPolicy, rows: int = _EXAMPLES) -> dict[str, np.ndarray]:
    """Zero observations {key: [rows, *shape]}."""
    shapes = {key: policy.stacking.shape(key) for key in policy.observations}
    return {key: np.zeros((rows, *shape), layout.SPECS[key].dtype) for key, shape in shapes.items()}


def to_onnx(policy: NppPolicy, *, frame_skip: int) -> bytes:
    """Export a policy in float32, for any precision of the policy.

    frame_skip: frames per decision in training.
    ExportError: the network cannot be expressed, or has no statistics yet.  MissingPackageError without the extra ``onnx``.
    """
    needed("onnxscript", "onnx")
    check_exportable(policy)
    if policy.statistics is None:
        raise ExportError(f"{policy.architecture} has no observation statistics yet: train it before it is exported")
    facts = facts_of(policy, frame_skip)
    proto = _traced(policy)
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(asdict(facts))
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def facts_of(policy: NppPolicy, frame_skip: int) -> Facts:
    """Metadata for the file of a policy."""
    keys = policy.observations
    return Facts(policy.architecture, keys, layout.fingerprint(keys), policy.stacking.name, frame_skip)


def _traced(policy: NppPolicy) -> Any:
    """Trace the policy to an onnx.ModelProto."""
    tensors = [torch.from_numpy(values) for values in example(policy).values()]
    tensors.append(torch.ones(_EXAMPLES, NUM_ACTIONS, dtype=torch.bool))
    rows = torch.export.Dim("batch", min=1)
    precision, device, training = policy.precision, policy.device, policy.training
    policy.precision = "float32"
    policy.to("cpu").set_training_mode(False)
    try:
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # warnings about torch internals
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
            f"{policy.architecture} cannot be expressed in ONNX ({first[:200]}): a network of one's own may use what torch "
            "can export (no numpy, no loops over the batch), see docs/search_and_export.md"
        ) from error
    finally:
        policy.precision = precision
        policy.to(device).set_training_mode(training)
    assert program is not None
    proto = program.model_proto
    if any(one.type.tensor_type.shape.dim[0].dim_value for one in proto.graph.input):
        raise ExportError(
            f"{policy.architecture} can be expressed in ONNX only for a fixed number of observations: take shape[0] of a "
            "tensor in place of len(), and do not compare it with a number (docs/search_and_export.md)"
        )
    return proto


def described(facts: Facts, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, object]:
    """Inputs and outputs: name -> dtype and shape of one row."""
    inputs = {key: {"dtype": layout.SPECS[key].dtype, "shape": list(shapes[key])} for key in facts.observations}
    inputs[MASK] = {"dtype": "bool", "shape": [NUM_ACTIONS]}
    outputs = zip(OUTPUTS, (("float32", [NUM_ACTIONS]), ("float32", []), ("int64", [])), strict=True)
    return {"inputs": inputs, "outputs": {name: {"dtype": kind, "shape": shape} for name, (kind, shape) in outputs}}
