"""Networks: encoders from raw observations to features, and deep heads.

An ``Encoder`` normalises raw observations (``nppsim.observe.layout``) with frozen statistics and returns one feature vector.
All layers are created in ``__init__``; a layer created with the first batch would be missing from the optimiser.  There is
neither batch norm nor dropout, as PPO's probability ratio requires the same function in rollout and update.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import nn

from nppsim.errors import UserError
from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.observe.statistics import ObservationStatistics, StatisticsError
from rl.policy.architectures import ArchitectureError, ResidualBlocks, get_architecture
from rl.policy.constants import CLAMP, PIXEL_SCALE
from rl.policy.graph_network import GraphEncoder, compute_dtype
from rl.policy.image_patches import distinct_patches

TOKEN = 64  # number of features of a modality in attention
CHANNELS = 16  # number of features of an image patch
PATCHES = {"player_frame": (12, 12), "global_view": (16, 20)}  # patch sizes in pixels, for 7x7 and 11x5 patches
LEAK = 0.1  # slope of the leaky ReLU; with 0, all 16 features of a patch can be dead
CONVERTED = 2**19  # number of bytes that a CPU converts to floats together; the floats fit into its cache


class ObservationError(UserError, ValueError):
    """An observation that does not fit the network: a missing key, or a wrong shape or dtype."""


class NormalizeObservations(nn.Module):
    """First layer: concatenate all float observations, normalise them, and clamp them to -10..10.

    The input is {key: float32[N, *shape]}, or [N, frames, *shape] for stacked keys.  The output is float32[N, E] in layout
    order.  All frames of a stack have the same statistics.
    The statistics are buffers in the state dict, without gradient or running update: ``mean``, ``std`` and ``divisor``
    float64[D], ``count`` int64, and ``fingerprint`` uint8[16], the hex digits of the layout's fingerprint.  ``forward``
    raises StatisticsError until ``set_statistics`` or a state dict fills them.

    output_slices: slice of each key in the output.
    columns: slice of each key in the statistics; the same as in ``output_slices`` without stacking.
    newest: int64[D], for each column of the statistics, index in the output of its newest frame.
    """

    mean: torch.Tensor
    std: torch.Tensor
    divisor: torch.Tensor
    count: torch.Tensor
    fingerprint: torch.Tensor
    _column: torch.Tensor | None

    def __init__(self, keys: tuple[str, ...], stacking: Stacking = NO_STACKS):
        super().__init__()
        self.keys = keys
        self.float_keys = tuple(key for key in keys if layout.SPECS[key].dtype == "float32")
        self.columns = _slices({key: layout.SPECS[key].shape for key in self.float_keys})
        self.output_slices = _slices({key: stacking.shape(key) for key in self.float_keys})
        self.size = stop = max((columns.stop for columns in self.columns.values()), default=0)
        stacked = bool(stacking.stacked(self.float_keys))
        ends = [(columns, self.output_slices[key].stop) for key, columns in self.columns.items()]
        nothing = np.zeros(0, np.int64)  # for networks that only observe images
        self.newest = np.concatenate([nothing, *(np.arange(s.start - s.stop, 0) + end for s, end in ends)])
        columns = [np.tile(np.arange(s.start, s.stop), stacking.frames(key)) for key, s in self.columns.items()]
        # Column of the statistics for each number of the output; None if output and statistics have the same order.
        self.register_buffer(
            "_column", torch.from_numpy(np.concatenate(columns)) if stacked else None, persistent=False
        )
        # NaN until the statistics are set: code that bypasses the check in forward() must not get plausible numbers.
        for name in ("mean", "std", "divisor"):
            self.register_buffer(name, torch.full((stop,), torch.nan, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fingerprint", torch.tensor(list(layout.fingerprint(keys).encode()), dtype=torch.uint8))
        self._filled = not self.float_keys

    @property
    def statistics(self) -> ObservationStatistics | None:
        """The statistics, or None before they are set."""
        if not self._filled:
            return None
        fields = {}
        for field in ("mean", "std"):
            values = getattr(self, field).cpu().numpy()
            fields[field] = {key: values[self.columns[key]].reshape(layout.SPECS[key].shape) for key in self.float_keys}
        return ObservationStatistics.from_dict(
            {"keys": self.keys, "fingerprint": layout.fingerprint(self.keys), "count": int(self.count), **fields}
        )

    def set_statistics(self, statistics: ObservationStatistics) -> None:
        """Set the statistics.  Raises StatisticsError for another layout or fewer than 2 samples."""
        statistics.require(layout.fingerprint(self.keys), "the network")
        for field in ("mean", "std", "divisor"):
            values = getattr(statistics, field)
            flat = np.concatenate([np.zeros(0), *(values[key].reshape(-1) for key in self.float_keys)])
            getattr(self, field).copy_(torch.from_numpy(flat))
        self.count.fill_(statistics.count)
        self._filled = True

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if not self._filled:
            raise StatisticsError(
                "the policy has no observation statistics yet: pass statistics=... to it, or call set_statistics() "
                "with statistics of the demonstrations, or of random play without demonstrations"
            )
        if not self.float_keys:
            return torch.zeros((len(observations[self.keys[0]]), 0), device=self.mean.device)
        raw = torch.cat([observations[key].flatten(1) for key in self.float_keys], dim=1)
        mean, divisor = self.mean.float(), self.divisor.float()
        if self._column is not None:
            mean, divisor = mean[self._column], divisor[self._column]
        return ((raw - mean) / divisor).clamp_(-CLAMP, CLAMP)

    def _load_from_state_dict(self, state_dict: dict[str, torch.Tensor], prefix: str, *args: Any) -> None:
        stored = state_dict.get(prefix + "fingerprint")
        if stored is not None and not torch.equal(stored.cpu(), self.fingerprint.cpu()):
            raise StatisticsError(
                f"these weights were trained on observation layout {_text(stored)}, this network reads layout "
                f"{_text(self.fingerprint)} ({', '.join(self.keys)}): train again, or use the version of the project "
                f"that wrote them"
            )
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._filled = bool(self.count >= 2) or not self.float_keys


def _slices(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, slice]:
    """Return the slice of each key in the concatenation of arrays of these shapes."""
    stops = np.cumsum([math.prod(shape) for shape in shapes.values()]).tolist()
    return {key: slice(stop - math.prod(shape), stop) for (key, shape), stop in zip(shapes.items(), stops, strict=True)}


def _text(digits: torch.Tensor) -> str:
    return bytes(digits.tolist()).decode("ascii", "replace")


class ByteLinear(nn.Linear):
    """Linear layer for uint8 input, equal to ``linear(x / 255)``.

    It scales the weights instead of the pixels: bytes are exact in bfloat16, and a batch has more pixels than the layer has
    weights.  Scaling the pixels took a tenth of the time of an update.
    """

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            return F.linear(pixels.float(), self.weight * PIXEL_SCALE, self.bias)
        result: torch.Tensor = _BytesByWeights.apply(pixels.flatten(0, -2), self.weight, self.bias)
        return result.unflatten(0, pixels.shape[:-1])


class _BytesByWeights(torch.autograd.Function):
    """Product of uint8[R, I] and float32[O, I], plus float32[O]: float[R, O].

    Converted to floats, the pixels of a batch do not fit into the cache.  They are therefore converted in parts, in the
    forward pass and again in the backward pass.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, pixels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        dtype = compute_dtype(pixels.device)
        ctx.save_for_backward(pixels)
        factors, offset = (weight.t() * PIXEL_SCALE).to(dtype), bias.to(dtype)
        result = pixels.new_empty((len(pixels), len(weight)), dtype=dtype)
        for rows in _parts(pixels):
            torch.addmm(offset, pixels[rows].to(dtype), factors, out=result[rows])
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
        (pixels,) = ctx.saved_tensors
        weights = pixels.new_zeros((gradient.shape[1], pixels.shape[1]), dtype=torch.float32)
        for rows in _parts(pixels):
            weights += gradient[rows].t() @ pixels[rows].to(gradient.dtype)
        return None, weights * PIXEL_SCALE, gradient.sum(0, dtype=torch.float32)


def _parts(pixels: torch.Tensor) -> list[slice]:
    """Return slices of the rows to convert together: few rows on a CPU, all rows on other devices."""
    count = max(1, CONVERTED // pixels.shape[1]) if pixels.device.type == "cpu" else max(1, len(pixels))
    return [slice(begin, begin + count) for begin in range(0, len(pixels), count)]


def patches(image: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Cut images into patches of h rows and w columns: uint8[N, H, W] to uint8[N, H/h, W/w, h*w].

    size: (h, w).  h must divide H, w must divide W, and 4 must divide w.
    Moving four bytes together as one int32 is nine times as fast as moving single bytes.
    """
    n, height, width = image.shape
    h, w = size
    if torch.compiler.is_exporting():  # ONNX cannot view bytes as int32
        return image.view(n, height // h, h, width // w, w).transpose(2, 3).reshape(n, height // h, width // w, h * w)
    words = image.contiguous().view(torch.int32).view(n, height // h, h, width // w, w // 4)
    return words.transpose(2, 3).contiguous().view(torch.uint8).view(n, height // h, width // w, h * w)


class ImageCNN(nn.Module):
    """Convolution over patches that do not overlap, then a linear layer: uint8[N, H, W, 1] to float[N, size].

    The input may also be uint8[N, 1, H, W], or a stack uint8[N, frames, H, W, 1], whose frames are channels.
    shape: (H, W), size of the image in pixels.
    patch: (h, w), size of a patch in pixels.
    size: number of output features.
    frames: number of frames in a stack.

    As the patches do not overlap, the convolution is a matrix product.  A convolution of torch with as many operations takes
    twice the time, most of it in the backward pass.  On a CPU, each distinct patch of the batch is embedded once.
    """

    def __init__(self, shape: tuple[int, int], patch: tuple[int, int], size: int, frames: int = 1):
        super().__init__()
        self.shape, self.patch, self.frames = shape, patch, frames
        rows, columns = shape[0] // patch[0], shape[1] // patch[1]
        self.embedding = ByteLinear(frames * patch[0] * patch[1], CHANNELS)
        self.linear = nn.Linear(CHANNELS * rows * columns, size)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if image.device.type == "cpu" and not torch.compiler.is_exporting():
            table, index = distinct_patches(image.reshape(-1, self.frames, *self.shape), self.patch)
            embedded = F.leaky_relu(self.embedding(table), LEAK).index_select(0, index).view(len(image), -1)
        else:
            cells = patches(image.reshape(-1, *self.shape), self.patch)
            if self.frames > 1:
                cells = cells.unflatten(0, (-1, self.frames)).permute(0, 2, 3, 1, 4).flatten(3)
            embedded = F.leaky_relu(self.embedding(cells), LEAK).flatten(1)
        return F.relu(self.linear(embedded))


class SurroundingsMLP(nn.Module):
    """One linear layer over all cells of the local map: uint8[N, 3, 19, 19] to float[N, size]."""

    def __init__(self, size: int):
        super().__init__()
        self.linear = ByteLinear(int(np.prod(layout.SPECS["surroundings"].shape)), size)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        return F.relu(self.linear(cells.flatten(1)))


class VectorMLP(nn.Module):
    """MLP over some columns of the normalised vectors: float32[N, D] to float[N, sizes[-1]]."""

    def __init__(self, columns: slice, sizes: tuple[int, ...]):
        super().__init__()
        self.columns = columns
        self.layers = mlp(columns.stop - columns.start, sizes)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.layers(vectors[:, self.columns])


def mlp(inputs: int, sizes: tuple[int, ...]) -> nn.Sequential:
    """Return an MLP with a linear layer and a ReLU for each size."""
    layers = []
    for before, size in pairwise((inputs, *sizes)):
        layers += [nn.Linear(before, size), nn.ReLU()]
    return nn.Sequential(*layers)


class ModalityAttention(nn.Module):
    """Self-attention with one token for each modality: a list of float[N, width] to float[N, tokens * 64].

    It has no feed-forward layers, as fusion layers follow.  Source: Vaswani et al. 2017.
    """

    def __init__(self, widths: list[int], heads: int):
        super().__init__()
        self.heads = heads
        self.tokens = nn.ModuleList(nn.Linear(width, TOKEN) for width in widths)
        self.norm = nn.LayerNorm(TOKEN)
        self.inputs = nn.Linear(TOKEN, 3 * TOKEN)
        self.output = nn.Linear(TOKEN, TOKEN)

    def forward(self, branches: list[torch.Tensor]) -> torch.Tensor:
        tokens = torch.stack([token(branch) for token, branch in zip(self.tokens, branches, strict=True)], dim=1)
        parts = self.inputs(self.norm(tokens)).unflatten(2, (3, self.heads, -1)).unbind(2)
        query, key, value = (part.transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return (tokens + self.output(attended)).flatten(1)


class DeepHeads(nn.Module):
    """Residual blocks as hidden layers of actor and critic, with the interface of Stable-Baselines3's MlpExtractor.

    inputs: number of input features.
    width: number of features of the blocks and of the outputs.
    Source: He et al. 2016 (pre-activation blocks), Ba et al. 2016 (layer norm), Elfwing et al. 2018 (SiLU).
    """

    def __init__(self, inputs: int, width: int, blocks: ResidualBlocks):
        super().__init__()
        self.latent_dim_pi = self.latent_dim_vf = width
        self.policy_net = _head(inputs, width, blocks)
        self.value_net = _head(inputs, width, blocks)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return self.policy_net(features)

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return self.value_net(features)


class _Block(nn.Module):
    """Residual block of two layers: float[N, width] to float[N, width]."""

    def __init__(self, width: int, blocks: ResidualBlocks):
        super().__init__()
        self.residual = blocks.residual
        self.norm = _norm(width, blocks)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.second(F.silu(self.first(self.norm(x))))
        return x + out if self.residual else out


def _norm(width: int, blocks: ResidualBlocks) -> nn.Module:
    return nn.LayerNorm(width) if blocks.layer_norm else nn.Identity()


def _head(inputs: int, width: int, blocks: ResidualBlocks) -> nn.Sequential:
    parts = [_Block(width, blocks) for _ in range(blocks.count)]
    return nn.Sequential(nn.Linear(inputs, width), *parts, _norm(width, blocks), nn.SiLU())


class Encoder(nn.Module):
    """Network from raw observations to features float[N, fusion[-1]]: normaliser, one branch per modality, and fusion.

    architecture: name in ARCHITECTURES.
    Raises ObservationError if a key is missing in the observation space or in a batch, or has a wrong shape or dtype.
    """

    def __init__(self, observation_space: spaces.Dict, architecture: str):
        chosen = get_architecture(architecture)
        super().__init__()
        self.features_dim = chosen.fusion[-1]
        self.keys, self.stacking = chosen.observations, chosen.stacking
        check_space(observation_space, self.keys, self.stacking)
        self.normalize = NormalizeObservations(self.keys, self.stacking)
        self.own = chosen.module() if chosen.module else None  # custom network; tensor names contain ``own``
        self.graph: GraphEncoder | None = None
        if self.own is not None:
            return
        self.vectors = nn.ModuleList(VectorMLP(self._columns(keys), sizes) for keys, sizes in chosen.vectors)
        self.images = nn.ModuleDict()
        for key, patch in PATCHES.items():
            if getattr(chosen, key):
                height, width, _ = layout.SPECS[key].shape
                frames = self.stacking.frames(key)
                self.images[key] = ImageCNN((height, width), patch, getattr(chosen, key), frames)
        if chosen.surroundings:
            self.images["surroundings"] = SurroundingsMLP(chosen.surroundings)
        widths = [sizes[-1] for _, sizes in chosen.vectors] + [getattr(chosen, key) for key in self.images]
        self.graph = GraphEncoder(chosen.graph) if chosen.graph else None
        if chosen.graph:
            widths.append(chosen.graph.out)
        self.attention = ModalityAttention(widths, chosen.attention) if chosen.attention else None
        self.fusion = mlp(TOKEN * len(widths) if chosen.attention else sum(widths), chosen.fusion)

    def _columns(self, keys: tuple[str, ...]) -> slice:
        slices = [self.normalize.output_slices[key] for key in keys]
        for left, right in pairwise(slices):
            if left.stop != right.start:
                raise ArchitectureError(
                    f"vectors {', '.join(keys)} are not neighbours in the observation layout; give them in separate entries"
                )
        return slice(slices[0].start, slices[-1].stop)

    def _newest(self, observations: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the newest frames of all observations."""
        return {
            key: observations[key].reshape(-1, frames, *layout.SPECS[key].shape)[:, -1]
            if frames > 1
            else observations[key]
            for key, frames in ((key, self.stacking.frames(key)) for key in self.keys)
        }

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        check_batch(observations, self.keys, self.stacking)
        vectors = self.normalize(observations)
        if self.own is not None:
            return self._module_features(self.own, observations, vectors)
        branches = [branch(vectors) for branch in self.vectors]
        branches += [branch(observations[key]) for key, branch in self.images.items()]
        if self.graph:
            branches.append(self.graph(self._newest(observations)))
        return self.fusion(self.attention(branches) if self.attention else torch.cat(branches, dim=1))

    def _module_features(
        self, module: nn.Module, observations: Mapping[str, torch.Tensor], vectors: torch.Tensor
    ) -> torch.Tensor:
        """Return the features of a custom network.  Raises ArchitectureError if they have a wrong shape."""
        inputs = {key: vectors[:, columns] for key, columns in self.normalize.columns.items()}
        for key in self.keys:
            if layout.SPECS[key].dtype == "uint8":
                inputs[key] = observations[key].float() * PIXEL_SCALE
        inputs = {key: values.reshape(-1, *layout.SPECS[key].shape) for key, values in inputs.items()}
        features = module(inputs)
        expected = (vectors.shape[0], self.features_dim)  # len() would fix the batch size of an exported network
        if tuple(features.shape) != expected:
            raise ArchitectureError(
                f"{type(module).__name__} returns {list(features.shape)}, expected {list(expected)}: the last number is "
                "fusion[-1] of its Architecture"
            )
        return features


def check_space(space: spaces.Space, keys: tuple[str, ...], stacking: Stacking = NO_STACKS) -> None:
    """Raise ObservationError unless ``space`` is a Dict space with these keys in the shapes and dtypes of the layout."""
    if not isinstance(space, spaces.Dict):
        raise ObservationError(f"the policy needs a Dict observation space, got {type(space).__name__}")
    missing = [key for key in keys if key not in space.spaces]
    if missing:
        names = ", ".join(layout.SPECS[key].name for key in missing)
        raise ObservationError(
            f"the environment does not compute {', '.join(missing)}, only {', '.join(space.spaces)}: add {names} to its "
            f"observations"
        )
    for key in keys:
        _check(key, space[key].shape or (), str(space[key].dtype), stacking.frames(key))


def check_batch(
    observations: Mapping[str, torch.Tensor] | Mapping[str, np.ndarray],
    keys: tuple[str, ...],
    stacking: Stacking = NO_STACKS,
) -> None:
    """Raise ObservationError unless a batch of raw arrays or tensors has all keys in the right shapes and dtypes."""
    for key in keys:
        if key not in observations:
            raise ObservationError(f"observation lacks {key}; it has {', '.join(observations) or 'nothing'}")
        values = observations[key]
        _check(key, tuple(values.shape[1:]), str(values.dtype).removeprefix("torch."), stacking.frames(key))


def _check(key: str, shape: tuple[int, ...], dtype: str, frames: int) -> None:
    """Raise ObservationError for a wrong shape or dtype of one observation with ``frames`` frames."""
    spec = layout.SPECS[key]
    stack = (frames,) if frames > 1 else ()
    # Stable-Baselines3 transposes images; with one channel, this does not change the order in memory.
    channel_first = (1, *spec.shape[:2]) if spec.shape[2:] == (1,) else spec.shape
    flat = (frames * math.prod(spec.shape),)  # shape of the flattened observations of ``nppsim.gym.spaces``
    if shape not in ((*stack, *spec.shape), (*stack, *channel_first), flat):
        hint = f" ({frames} frames: give the environment the network's stacking)" if stack else ""
        raise ObservationError(f"{key} has shape {shape} per observation, expected {(*stack, *spec.shape)}{hint}")
    if dtype != spec.dtype:
        hint = " (raw bytes: the network scales them itself)" if spec.dtype == "uint8" else ""
        raise ObservationError(f"{key} has dtype {dtype}, expected {spec.dtype}{hint}")
