"""Mutations of networks, sampling of actions and transfer of weights."""

import torch
import torch.nn.functional as F

from rl.policy import networks
from rl.policy.networks import ByteLinear, Encoder, NormalizeObservations
from rl.policy.policy import build_policy, sample_actions
from rl.policy.weight_map import transfer
from rl.ppo.ppo import PPO
from tests.mutation.mutation import mutation


@mutation("half of the weights are transferred", "tests/rl/policy/test_weight_map.py").everywhere(transfer)
def _(original, source, target, **named):
    half = {name: source[name] for name in sorted(source)[: len(source) // 2]}
    return original(half, target, fresh=[name for name in target.state_dict() if name not in half])


@mutation("tensors of the BC policy have a prefix", "tests/rl/policy/test_weight_map.py").everywhere(transfer)
def _(original, source, target, **named):
    return original({f"module.{name}": tensor for name, tensor in source.items()}, target, **named)


mutation("weights of another architecture are transferred", "tests/rl/policy/test_weight_map.py").everywhere(
    transfer, lambda original, source, target, **k: original(build_policy("mlp_baseline").state_dict(), target, **k)
)


@mutation(
    "the actor's output layer is reinitialised after the transfer", "tests/rl/policy/test_weight_map.py"
).everywhere(transfer)
def _(original, source, target, **named):
    report = original(source, target, **named)
    target.action_net.reset_parameters()
    return report


mutation("an encoder's output is detached", "tests/rl/ppo/test_ppo.py").wrap(
    networks.VectorMLP, "forward", lambda original, branch, vectors: original(branch, vectors).detach()
)


@mutation("bytes are divided by 255 twice", "tests/rl/policy/test_policy.py").wrap(ByteLinear, "forward")
def _(original, layer, pixels):
    return F.linear(pixels.float(), layer.weight / 255**2, layer.bias)


@mutation("observations are not normalised", "tests/rl/policy/test_weight_map.py").wrap(
    NormalizeObservations, "forward"
)
def _(original, layer, observations):
    return torch.cat([observations[key].flatten(1) for key in layer.float_keys], dim=1)


mutation("dropout between rollout and update", "tests/rl/policy/test_weight_map.py").wrap(
    Encoder, "forward", lambda original, encoder, obs: F.dropout(original(encoder, obs), 0.2)
)


@mutation("another activation function than configured", "tests/rl/ppo/test_ppo.py").wrap(PPO, "__init__")
def _(original, ppo, *arguments, **named):
    original(ppo, *arguments, **named)
    ppo.policy.mlp_extractor.policy_net[1] = torch.nn.Tanh()


mutation("actions are chosen greedily while they are to be sampled", "tests/rl/ppo/test_ppo.py").everywhere(
    sample_actions, lambda original, logits, rng=None: logits.argmax(dim=1)
)


mutation("actions are sampled at another temperature", "tests/rl/policy/test_policy.py").everywhere(
    sample_actions, lambda original, logits, rng=None: original(3 * logits, rng)
)


@mutation("all environments share random numbers for sampling", "tests/rl/policy/test_policy.py").everywhere(
    sample_actions
)
def _(original, logits, rng=None):
    return (logits - torch.empty(1, logits.shape[1]).exponential_(generator=rng).log()).argmax(dim=1)


@mutation("the output layer of the actor is not in the optimiser", "tests/rl/ppo/test_ppo.py").wrap(PPO, "__init__")
def _(original, ppo, *arguments, **named):
    original(ppo, *arguments, **named)
    mine = {id(p) for p in ppo.policy.action_net.parameters()}
    group = ppo.policy.optimizer.param_groups[0]
    group["params"] = [p for p in group["params"] if id(p) not in mine]
