"""Mutations of networks, sampling of actions and transfer of weights."""

import torch
import torch.nn.functional as F

from rl.policy import networks
from rl.policy.networks import ByteLinear, Encoder, NormalizeObservations
from rl.policy.policy import build_policy, sample_actions
from rl.policy.weight_map import transfer
from rl.ppo.ppo import PPO
from tests.mutation.mutation import Patch, mutation


@mutation("half of the weights are transferred", tests=("tests/rl/policy/test_weight_map.py",))
def _(patch: Patch) -> None:
    def changed(original, source, target, **named):
        half = {name: source[name] for name in sorted(source)[: len(source) // 2]}
        return original(half, target, fresh=[name for name in target.state_dict() if name not in half])

    patch.everywhere(transfer, changed)


@mutation("tensors of the BC policy have a prefix", tests=("tests/rl/policy/test_weight_map.py",))
def _(patch: Patch) -> None:
    def changed(original, source, target, **named):
        return original({f"module.{name}": tensor for name, tensor in source.items()}, target, **named)

    patch.everywhere(transfer, changed)


@mutation("weights of another architecture are transferred", tests=("tests/rl/policy/test_weight_map.py",))
def _(patch: Patch) -> None:
    patch.everywhere(
        transfer, lambda original, source, target, **k: original(build_policy("mlp_baseline").state_dict(), target, **k)
    )


@mutation("the actor's output layer is reinitialised after the transfer", tests=("tests/rl/policy/test_weight_map.py",))
def _(patch: Patch) -> None:
    def changed(original, source, target, **named):
        report = original(source, target, **named)
        target.action_net.reset_parameters()
        return report

    patch.everywhere(transfer, changed)


@mutation("an encoder's output is detached", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    patch.wrap(networks.VectorMLP, "forward", lambda original, branch, vectors: original(branch, vectors).detach())


@mutation("bytes are divided by 255 twice", tests=("tests/rl/policy/test_policy.py",))
def _(patch: Patch) -> None:
    def changed(original, layer, pixels):
        return F.linear(pixels.float(), layer.weight / 255**2, layer.bias)

    patch.wrap(ByteLinear, "forward", changed)


@mutation("observations are not normalised", tests=("tests/rl/policy/test_weight_map.py",))
def _(patch: Patch) -> None:
    def changed(original, layer, observations):
        return torch.cat([observations[key].flatten(1) for key in layer.float_keys], dim=1)

    patch.wrap(NormalizeObservations, "forward", changed)


@mutation("dropout between rollout and update", tests=("tests/rl/policy/test_weight_map.py",))
def _(patch: Patch) -> None:
    patch.wrap(Encoder, "forward", lambda original, encoder, obs: F.dropout(original(encoder, obs), 0.2))


@mutation("another activation function than configured", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        ppo.policy.mlp_extractor.policy_net[1] = torch.nn.Tanh()

    patch.wrap(PPO, "__init__", changed)


@mutation("actions are chosen greedily while they are to be sampled", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    patch.everywhere(sample_actions, lambda original, logits, rng=None: logits.argmax(dim=1))


@mutation("actions are sampled at another temperature", tests=("tests/rl/policy/test_policy.py",))
def _(patch: Patch) -> None:
    patch.everywhere(sample_actions, lambda original, logits, rng=None: original(3 * logits, rng))


@mutation("all environments share random numbers for sampling", tests=("tests/rl/policy/test_policy.py",))
def _(patch: Patch) -> None:
    def changed(original, logits, rng=None):
        return (logits - torch.empty(1, logits.shape[1]).exponential_(generator=rng).log()).argmax(dim=1)

    patch.everywhere(sample_actions, changed)


@mutation("the output layer of the actor is not in the optimiser", tests=("tests/rl/ppo/test_ppo.py",))
def _(patch: Patch) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        mine = {id(p) for p in ppo.policy.action_net.parameters()}
        group = ppo.policy.optimizer.param_groups[0]
        group["params"] = [p for p in group["params"] if id(p) not in mine]

    patch.wrap(PPO, "__init__", changed)
