"""Faults of PPO: losses, advantages, updates, weights, and what the rollout says."""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from hardware.thread_pool import summed_gradients
from rl.config import PPOConfig
from rl.policy import networks
from rl.policy.networks import ByteLinear, Encoder, NormalizeObservations
from rl.policy.policy import NppPolicy, build_policy, check_optimiser_coverage, sample_actions
from rl.ppo.losses import losses, normalised
from rl.ppo.ppo import BatchPPO
from rl.ppo.rollout import TensorRolloutBuffer
from tests.mutation.mutations import Plants, fault


@fault("advantages with the wrong sign in the loss", "F65")
def _(plant: Plants) -> None:
    plant.around(normalised, lambda original, *given: -original(*given))


@fault("advantages with the wrong sign in the rollout", "F65")
def _(plant: Plants) -> None:
    def compute(original, buffer, last_values):
        original(buffer, last_values)
        buffer.advantages.neg_()

    plant.wrap(TensorRolloutBuffer, "compute_returns_and_advantages", compute)


@fault("advantages are zero: nothing is learned, the metric stays flat", "F1")
def _(plant: Plants) -> None:
    plant.wrap(
        TensorRolloutBuffer, "compute_returns_and_advantages", lambda original, buffer, last: buffer.advantages.zero_()
    )


@fault("entropy with the wrong sign", "F65", "F108")
def _(plant: Plants) -> None:
    def changed(original, logits, values, samples, settings):
        return original(logits, values, samples, replace(settings, ent_coef=-settings.ent_coef))

    plant.around(losses, changed)


@fault("the clip range is a tenth of what is configured", "F109")
def _(plant: Plants) -> None:
    def changed(original, logits, values, samples, settings):
        return original(logits, values, samples, replace(settings, clip_range=settings.clip_range / 10))

    plant.around(losses, changed)


@fault("a schedule shrinks the clip range", "F50")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        settings = original(ppo)
        return replace(settings, clip_range=settings.clip_range * (0.9 - ppo.progress / 2))

    plant.wrap(BatchPPO, "_loss_settings", changed)


@fault("the policy's loss is not clipped", "F65", "F109")
def _(plant: Plants) -> None:
    def changed(original, logits, values, samples, settings):
        parts = original(logits, values, samples, settings)
        chosen = F.log_softmax(logits, dim=1).gather(1, samples.actions[:, None])[:, 0]
        ratio = (chosen - samples.log_probs.gather(1, samples.actions[:, None])[:, 0]).exp()
        plain = -(ratio * samples.advantages).mean()
        return parts._replace(policy_gradient_loss=plain, loss=parts.loss - parts.policy_gradient_loss + plain)

    plant.around(losses, changed)


@fault("the value loss has the wrong sign", "F65")
def _(plant: Plants) -> None:
    def changed(original, logits, values, samples, settings):
        return original(logits, values, samples, replace(settings, vf_coef=-settings.vf_coef))

    plant.around(losses, changed)


@fault("value targets are recomputed in every epoch", "F32")
def _(plant: Plants) -> None:
    def changed(original, ppo, passes):
        for number, index in enumerate(original(ppo, passes)):
            if number == 4:
                with torch.no_grad():
                    rows = torch.arange(len(ppo.rollout_buffer))
                    values = ppo.policy.logits_and_values(ppo.rollout_buffer.observations(rows))[1]
                    ppo.rollout_buffer.returns.copy_(
                        ppo.rollout_buffer.advantages + values.view(ppo.rollout_buffer.shape)
                    )
            yield index

    plant.wrap(BatchPPO, "_steps", changed)


@fault("rollouts discount with another gamma", "F33")
def _(plant: Plants) -> None:
    def changed(original, buffer, last_values):
        buffer.gamma = 0.97
        original(buffer, last_values)

    plant.wrap(TensorRolloutBuffer, "compute_returns_and_advantages", changed)


@fault("lambda is 1 in the rollouts", "F33", "F111")
def _(plant: Plants) -> None:
    def changed(original, buffer, *arguments, **named):
        original(buffer, *arguments, **named)
        buffer.gae_lambda = 1.0

    plant.wrap(TensorRolloutBuffer, "__init__", changed)


@fault("time-outs are learned as ends", "H11")
def _(plant: Plants) -> None:
    plant.set(BatchPPO, "_extend", lambda ppo, cut_off: None)


@fault("the value of what was cut off is added one decision early", "F55")
def _(plant: Plants) -> None:
    def changed(original, ppo, cut_off):
        n = ppo.sim.num_envs
        original(ppo, [part._replace(decisions=np.maximum(part.decisions - n, 0)) for part in cut_off])

    plant.wrap(BatchPPO, "_extend", changed)


@fault("the rollout's last value is taken as 0", "F65")
def _(plant: Plants) -> None:
    def changed(original, buffer, last_values):
        original(buffer, torch.zeros_like(last_values))

    plant.wrap(TensorRolloutBuffer, "compute_returns_and_advantages", changed)


@fault("advantages run over the ends of episodes", "F65")
def _(plant: Plants) -> None:
    def changed(original, buffer, last_values):
        ends = buffer.episode_ends.clone()
        buffer.episode_ends.zero_()
        original(buffer, last_values)
        buffer.episode_ends.copy_(ends)

    plant.wrap(TensorRolloutBuffer, "compute_returns_and_advantages", changed)


@fault("the learning rate is 0", "F50")
def _(plant: Plants) -> None:
    plant.wrap(BatchPPO, "_learning_rate", lambda original, ppo: 0.0)


@fault("the learning rate falls with the cube of what is left", "F50", "F34")
def _(plant: Plants) -> None:
    plant.wrap(PPOConfig, "learning_rate_at", lambda original, config, p: original(config, p) * (1 - p) ** 3)


@fault("no warm-up of the learning rate after imitation", "F95")
def _(plant: Plants) -> None:
    plant.set(BatchPPO, "_risen", property(lambda ppo: 1.0))


@fault("the pull towards the clone never ends", "F50")
def _(plant: Plants) -> None:
    plant.wrap(PPOConfig, "bc_kl_coef_at", lambda original, config, progress: config.bc_kl_coef_start)


@fault("the output layer of the actor is not in the optimiser", "H3")
def _(plant: Plants) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        mine = {id(p) for p in ppo.policy.action_net.parameters()}
        group = ppo.policy.optimizer.param_groups[0]
        group["params"] = [p for p in group["params"] if id(p) not in mine]

    plant.wrap(BatchPPO, "__init__", changed)


@fault("layers appear after the optimiser was made", "H3")
def _(plant: Plants) -> None:
    def changed(original, policy, *arguments, **named):
        original(policy, *arguments, **named)
        policy.late = torch.nn.Linear(3, 3)

    plant.wrap(NppPolicy, "__init__", changed)
    plant.around(check_optimiser_coverage, lambda original, policy: None)


@fault("a layer is dead: its weights are 0 and stay so", "H16", "H38")
def _(plant: Plants) -> None:
    def changed(original, branch, vectors):
        with torch.no_grad():
            branch.layers[0].weight.zero_()
            branch.layers[0].bias.fill_(-1.0)
        return original(branch, vectors)

    plant.wrap(networks.VectorMLP, "forward", changed)


@fault("an encoder's output is detached", "H16")
def _(plant: Plants) -> None:
    plant.wrap(networks.VectorMLP, "forward", lambda original, branch, vectors: original(branch, vectors).detach())


@fault("half of the weights are frozen", "H16")
def _(plant: Plants) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        parameters = list(ppo.policy.parameters())
        for parameter in parameters[: len(parameters) // 2]:
            parameter.requires_grad_(False)

    plant.wrap(BatchPPO, "__init__", changed)


@fault("NaN in the gradient of one update", "F116")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        if ppo.updates == 9:
            next(p for p in ppo.policy.parameters() if p.grad is not None).grad.fill_(float("nan"))
        return original(ppo)

    plant.wrap(BatchPPO, "_descend", changed)


@fault("the actor is pulled towards a random policy", "F96")
def _(plant: Plants) -> None:
    def changed(original, ppo, cloned):
        original(ppo, build_policy(cloned.architecture, cloned.statistics))

    plant.wrap(BatchPPO, "anchor_to", changed)


@fault("the actor moves while only the critic is to learn", "F96")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        norm = original(ppo)
        if ppo.critic_only:
            with torch.no_grad():
                ppo.policy.action_net.bias.add_(0.01)
        return norm

    plant.wrap(BatchPPO, "_descend", changed)


@fault("every step of the optimiser is made fifteen times", "F96", "F109")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        for _ in range(14):
            ppo.policy.optimizer.step()
        return original(ppo)

    plant.wrap(BatchPPO, "_descend", changed)


@fault("gradients of minibatches add up", "F31")
def _(plant: Plants) -> None:
    kept: dict[int, tuple[torch.Tensor | None, torch.Tensor | int]] = {}  # parameters too, so that no id comes again

    def changed(original, pool, rows, loss, parameters, *begins):
        means, gradients = original(pool, rows, loss, parameters, *begins)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                gradient += kept.get(id(parameter), (None, 0))[1]
                kept[id(parameter)] = parameter, gradient.clone()
        return means, gradients

    plant.around(summed_gradients, changed)


@fault("only the first worker's gradient counts", "F67", "F31")
def _(plant: Plants) -> None:
    def changed(original, pool, rows, loss, parameters, *begins):
        first = slice(0, max(1, rows // max(pool.threads, 2)))
        minimised, averaged = loss(first)
        return averaged.detach(), list(torch.autograd.grad(minimised, parameters, allow_unused=True))

    plant.around(summed_gradients, changed)


@fault("actions are chosen greedily while they are to be sampled", "F28")
def _(plant: Plants) -> None:
    plant.around(sample_actions, lambda original, logits, rng=None: logits.argmax(dim=1))


@fault("actions are sampled at another temperature", "F28")
def _(plant: Plants) -> None:
    plant.around(sample_actions, lambda original, logits, rng=None: original(3 * logits, rng))


@fault("the rollout keeps renumbered actions", "F28", "F114")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        actions = original(ppo, t)
        ppo.rollout_buffer.actions[t] = (ppo.rollout_buffer.actions[t] + 3) % 6
        return actions

    plant.wrap(BatchPPO, "_decide", changed)


@fault("rows of the batch are mixed up between observing and deciding", "F66")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        before = {key: values.copy() for key, values in ppo.sim.obs.items()}
        for key, values in ppo.sim.obs.items():
            values[:] = np.roll(before[key], 1, axis=0)
        actions = original(ppo, t)
        for key, values in ppo.sim.obs.items():
            values[:] = before[key]
        return actions

    plant.wrap(BatchPPO, "_decide", changed)


@fault("actions reach the wrong environments", "F66")
def _(plant: Plants) -> None:
    plant.wrap(BatchPPO, "_decide", lambda original, ppo, t: np.roll(original(ppo, t), 1))


@fault("probabilities of the decision before are stored", "F66")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        actions = original(ppo, t)
        if t:
            ppo.rollout_buffer.log_probs[t - 1] = ppo.rollout_buffer.log_probs[t]
        return actions

    plant.wrap(BatchPPO, "_decide", changed)


@fault("observations are stored a decision late", "F66", "H41")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        actions = original(ppo, t)
        for store in ppo.rollout_buffer.obs.values():
            if t:
                store[t - 1] = store[t]
        return actions

    plant.wrap(BatchPPO, "_decide", changed)


@fault("stacks of the rollout show the newest frame first", "F89", flags=("--enable-state-stacking",))
def _(plant: Plants) -> None:
    plant.wrap(TensorRolloutBuffer, "stacks", lambda original, *asked: original(*asked).flip(1))


@fault("stacks of the rollout reach into the episode before", "F89", flags=("--enable-state-stacking",))
def _(plant: Plants) -> None:
    def changed(original, buffer, t):
        buffer.ages[t] = buffer.ages[0]

    plant.wrap(TensorRolloutBuffer, "note_ages", changed)


@fault("dropout between rollout and update", "H14")
def _(plant: Plants) -> None:
    plant.wrap(Encoder, "forward", lambda original, encoder, obs: F.dropout(original(encoder, obs), 0.2))


@fault("bytes are divided by 255 twice", "H13")
def _(plant: Plants) -> None:
    def changed(original, layer, pixels):
        return F.linear(pixels.float(), layer.weight / 255**2, layer.bias)

    plant.wrap(ByteLinear, "forward", changed)


@fault("the network reads raw observations: nothing is normalised", "F72")
def _(plant: Plants) -> None:
    def changed(original, layer, observations):
        return torch.cat([observations[key].flatten(1) for key in layer.float_keys], dim=1)

    plant.wrap(NormalizeObservations, "forward", changed)


@fault("PPO normalises with statistics of its own", "F72", "H19")
def _(plant: Plants) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        ppo.policy.features_extractor.normalize.mean += 1.0

    plant.wrap(BatchPPO, "anchor_to", changed)


@fault("rollouts are played in bfloat16, updates in float32", "F116")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return original(ppo, t)

    plant.wrap(BatchPPO, "_decide", changed)


@fault("updates are skipped", "F57")
def _(plant: Plants) -> None:
    plant.wrap(BatchPPO, "_descend", lambda original, ppo: torch.zeros(()))


@fault("a minibatch that does not divide the rollout", "F82", "F20")
def _(plant: Plants) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        ppo.batch_size = 300

    plant.wrap(BatchPPO, "__init__", changed)


@fault("most decisions are never learned from", "F20")
def _(plant: Plants) -> None:
    def changed(original, ppo, passes):
        for number, index in enumerate(original(ppo, passes)):
            if number % 4 == 0:
                yield index

    plant.wrap(BatchPPO, "_steps", changed)


@fault("the discount is 0.5", "F110", flags=("--gamma", "0.5"))
def _(plant: Plants) -> None:
    pass


@fault("the entropy coefficient is 0 in the update", "F108")
def _(plant: Plants) -> None:
    plant.wrap(BatchPPO, "_loss_settings", lambda original, ppo: replace(original(ppo), ent_coef=0.0))


@fault("another activation function than the table says", "F64", "F90")
def _(plant: Plants) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        ppo.policy.mlp_extractor.policy_net[1] = torch.nn.Tanh()

    plant.wrap(BatchPPO, "__init__", changed)
