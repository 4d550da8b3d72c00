"""Faults that nobody had listed; many were written together with the guards that notice them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import bc.train as imitation
from nppsim.batch import BatchSimulator
from rl.curriculum import make_sampler
from rl.curriculum.manager import CurriculumManager
from rl.evaluation import suite
from rl.evaluation.suite import EvaluationSuite
from rl.experiment import data as experiment_data
from rl.experiment import job as main_job
from rl.experiment.data import Suites
from rl.policy.policy import NppPolicy, build_policy, sample_actions
from rl.ppo.guard import EarlyStopping, Retention
from rl.ppo.losses import losses
from rl.ppo.monitor import TrainingMonitor
from rl.ppo.passes import Passes, samples_of
from rl.ppo.ppo import BatchPPO
from tests.mutation.mutations import Plants, fault

CURRICULUM = ("--use-curriculum", "--curriculum-min-episodes", "20")
OFTEN = ("--eval-freq", "2048")
TRAINED = 16  # environments of the tiny run's training


# ---------------------------------------------------------------------------------------------------------------------
# Losses, as they are in updates and not where the doctor looks


def _in_updates(plant: Plants, change: Callable[..., Any]) -> None:
    """Change the losses while an update is made."""
    now = {"updating": False}

    def train(original, ppo):
        now["updating"] = True
        original(ppo)
        now["updating"] = False

    plant.wrap(BatchPPO, "train", train)
    plant.around(losses, lambda original, *given: (change if now["updating"] else _plainly)(original, *given))


def _plainly(original: Callable[..., Any], *given: Any) -> Any:
    return original(*given)


@fault("ratios are taken to the present policy, not to the one that played", "F65")
def _(plant: Plants) -> None:
    _in_updates(
        plant,
        lambda original, logits, values, samples, settings: original(
            logits, values, replace(samples, log_probs=F.log_softmax(logits.detach(), dim=1)), settings
        ),
    )


@fault("the entropy bonus is that of sharper logits", "F65", "F108")
def _(plant: Plants) -> None:
    def changed(original, logits, values, samples, settings):
        parts = original(logits, values, samples, settings)
        log_probs = F.log_softmax(1.2 * logits, dim=1)
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
        loss = parts.loss - settings.ent_coef * (entropy + parts.entropy_loss)
        return parts if settings.critic_only else parts._replace(loss=loss, entropy_loss=-entropy)

    _in_updates(plant, changed)


@fault("the value loss grows straight beyond 1", "F65")
def _(plant: Plants) -> None:
    def changed(original, logits, values, samples, settings):
        parts = original(logits, values, samples, settings)
        other = F.smooth_l1_loss(values, samples.returns, beta=0.1)
        weight = settings.vf_coef / settings.return_variance
        return parts._replace(value_loss=other, loss=parts.loss + weight * (other - parts.value_loss))

    _in_updates(plant, changed)


@fault("only actions that were better than expected are learned from", "F65")
def _(plant: Plants) -> None:
    _in_updates(
        plant,
        lambda original, logits, values, samples, settings: original(
            logits, values, replace(samples, advantages=samples.advantages.clamp(min=0)), settings
        ),
    )


def _samples(plant: Plants, change: Callable[..., dict]) -> None:
    def changed(original, config, buffer, *given):
        samples = original(config, buffer, *given)
        return replace(samples, **change(buffer, samples))

    plant.around(samples_of, changed)


@fault("advantages are normalised in each environment by itself", "F65")
def _(plant: Plants) -> None:
    def change(buffer, samples):
        rows = buffer.advantages
        return {"advantages": ((rows - rows.mean(dim=0)) / (rows.std(dim=0) + 1e-8)).flatten()}

    _samples(plant, change)


@fault("the critic learns standardised returns", "F65", "F32")
def _(plant: Plants) -> None:
    _samples(
        plant, lambda buffer, samples: {"returns": (samples.returns - samples.returns.mean()) / samples.returns.std()}
    )


@fault("returns of neighbouring environments are learned", "F66")
def _(plant: Plants) -> None:
    _samples(plant, lambda buffer, samples: {"returns": buffer.returns.roll(1, dims=1).flatten()})


# ---------------------------------------------------------------------------------------------------------------------
# Updates


@fault("minibatches are drawn with repetition", "F20")
def _(plant: Plants) -> None:
    def changed(original, passes):
        for index in original(passes):
            yield index[torch.from_numpy(np.random.default_rng(0).integers(0, len(index), len(index)))]

    plant.wrap(Passes, "_minibatches", changed)


@fault("the last minibatch of each pass is the first one again", "F20")
def _(plant: Plants) -> None:
    def changed(original, passes):
        made = list(original(passes))
        yield from [*made[:-1], made[0]]

    plant.wrap(Passes, "_minibatches", changed)


@fault("gradients are cut off tensor by tensor", "F65", "F96")
def _(plant: Plants) -> None:
    plant.wrap(BatchPPO, "_parts_to_clip", lambda original, ppo: [[one] for part in original(ppo) for one in part])


@fault("the optimiser forgets its moments before each update", "F41")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        for state in ppo.policy.optimizer.state.values():
            state["exp_avg"].zero_()
        original(ppo)

    plant.wrap(BatchPPO, "train", changed)


def _group(plant: Plants, **changes: object) -> None:
    def changed(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        ppo.policy.optimizer.param_groups[0].update(changes)

    plant.wrap(BatchPPO, "__init__", changed)


@fault("weights decay", "F50")
def _(plant: Plants) -> None:
    _group(plant, weight_decay=0.1)


@fault("Adam averages over few steps", "F50")
def _(plant: Plants) -> None:
    _group(plant, betas=(0.5, 0.9))


@fault("the actor is pulled towards what it was an update ago", "F96")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        original(ppo)
        if ppo.updates > 4 and ppo.reference is not None:
            ppo.reference.load_state_dict(ppo.policy.state_dict())

    plant.wrap(BatchPPO, "train", changed)


@fault("the critic's warm-up ends at once", "F96")
def _(plant: Plants) -> None:
    plant.set(BatchPPO, "_critic_can_judge", lambda ppo: True)


@fault("progress runs at half speed", "F50", "F34")
def _(plant: Plants) -> None:
    original = BatchPPO.progress.fget  # type: ignore[attr-defined]
    plant.set(BatchPPO, "progress", property(lambda ppo: original(ppo) / 2))


# ---------------------------------------------------------------------------------------------------------------------
# Rollouts


@fault("a win is paid twice", "F4", "F26")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t] += ppo.rollout_buffer.wins[t].float()

    plant.wrap(BatchPPO, "_store_outcome", changed)


@fault("a time-out's value is that of the next episode's start", "H11", "F55")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        some = original(ppo, t)
        envs = some.decisions - t * ppo.sim.num_envs
        return some._replace(obs={key: ppo.sim.obs[key][envs] for key in some.obs})

    plant.wrap(BatchPPO, "_cut_off", changed)


@fault("a time-out's value is discounted twice", "H11", "F33")
def _(plant: Plants) -> None:
    def changed(original, ppo, cut_off):
        gamma, ppo.gamma = ppo.gamma, ppo.gamma**2
        original(ppo, cut_off)
        ppo.gamma = gamma

    plant.wrap(BatchPPO, "_extend", changed)


@fault("what comes after the rollout is valued by the clone", "F65")
def _(plant: Plants) -> None:
    def changed(original, ppo, obs):
        if ppo.reference is None:
            return original(ppo, obs)
        with torch.no_grad():
            return ppo.reference.logits_and_values(ppo.reference.to_tensors(obs))[1]

    plant.wrap(BatchPPO, "_values", changed)


@fault("one environment stands still", "F66", "H15")
def _(plant: Plants) -> None:
    held: dict[int, np.ndarray] = {}

    def changed(original, sim, actions, *asleep, **named):
        if sim.num_envs == TRAINED:
            held.setdefault(id(sim), sim.snapshot(3))
        obs = original(sim, actions, *asleep, **named)
        if id(sim) in held and 3 not in sim.finished:
            sim.restore(3, held[id(sim)])
        return obs

    plant.wrap(BatchSimulator, "step", changed)


@fault("foresight is of the state before", "H5", "H6", flags=("--architectures", "vision_free_foresight"))
def _(plant: Plants) -> None:
    held: dict[int, np.ndarray] = {}

    def changed(original, sim, *arguments):
        original(sim, *arguments)
        if "foresight" in sim.obs:
            now = sim.obs["foresight"].copy()
            before = held.get(id(sim), now)
            if before.shape == now.shape:
                sim.obs["foresight"][:] = before
            held[id(sim)] = now

    plant.wrap(BatchSimulator, "_run", changed)


@fault("episodes last twice as long as they may", "F5")
def _(plant: Plants) -> None:
    def changed(original, sim):
        static = original(sim)
        return static._replace(time_limit=static.time_limit * 2)

    plant.wrap(BatchSimulator, "_make_static", changed)


@fault("every decision is drawn with the same random numbers", "F28")
def _(plant: Plants) -> None:
    first: dict[str, torch.Tensor] = {}

    def changed(original, logits, rng=None):
        if rng is not None:
            rng.set_state(first.setdefault("state", rng.get_state()))
        return original(logits, rng)

    plant.around(sample_actions, changed)


@fault("all environments are drawn for with the same random numbers", "F28")
def _(plant: Plants) -> None:
    def changed(original, logits, rng=None):
        return (logits - torch.empty(1, logits.shape[1]).exponential_(generator=rng).log()).argmax(dim=1)

    plant.around(sample_actions, changed)


@fault("only wins enter the curve of success", "F61", "F63")
def _(plant: Plants) -> None:
    def changed(original, ppo, episodes, seconds):
        original(ppo, episodes, seconds)
        won = [one for one in ppo.ep_success_buffer if one]
        ppo.ep_success_buffer.clear()
        ppo.ep_success_buffer.extend(won)

    plant.wrap(BatchPPO, "_log_rollout", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Curriculum and seeds


@fault("weights of levels belong to other levels", "F49", "H2", flags=CURRICULUM)
def _(plant: Plants) -> None:
    plant.wrap(
        CurriculumManager,
        "draw",
        lambda original, sampler, n: np.int32(len(sampler.stage_of) - 1) - original(sampler, n),
    )


@fault("half of the levels are never drawn", "F155", "H27")
def _(plant: Plants) -> None:
    plant.wrap(CurriculumManager, "draw", lambda original, sampler, n: original(sampler, n) // 2 * 2)


@fault("levels that wait are not drawn anew after an update", "F154")
def _(plant: Plants) -> None:
    def changed(original, sampler, sim, *more, **named):
        waiting = sim.next_level.copy()
        original(sampler, sim, *more, **named)
        sim.next_level[:] = waiting

    plant.wrap(CurriculumManager, "update", changed)


@fault("seeds have no effect", stage="seeds")
def _(plant: Plants) -> None:
    seeded = torch.manual_seed

    def made(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named | {"seed": 0})

    plant.set(torch, "manual_seed", lambda seed: seeded(0))
    plant.wrap(BatchPPO, "__init__", made)
    plant.around(
        make_sampler, lambda original, categories, config, seed, **more: original(categories, config, 0, **more)
    )
    plant.around(main_job.statistics_of_random_play, lambda original, env, seed: original(env, 0))


# ---------------------------------------------------------------------------------------------------------------------
# Imitation and evaluation


@fault("imitation is validated on what it has learned from", "H29", "F118")
def _(plant: Plants) -> None:
    plant.around(
        imitation.evaluate,
        lambda original, policy, dataset, rows: original(policy, dataset, dataset.rows(validation=False)),
    )


@fault("levels that are judged on have no way to the exit", "H36")
def _(plant: Plants) -> None:
    def changed(original, levels):
        pairs = original(levels)
        if len(pairs) > 6:  # those of training
            return pairs
        level, category = pairs[0]
        return [(replace(level, tiles=np.ones_like(level.tiles)), category), *pairs[1:]]

    plant.wrap(experiment_data, "_pairs", changed)


@fault("evaluation counts episodes for the next category", "F94")
def _(plant: Plants) -> None:
    def changed(original, suite, *arguments, **named):
        original(suite, *arguments, **named)
        suite._category = suite._category[1:] + suite._category[:1]

    plant.wrap(EvaluationSuite, "__init__", changed)


@fault("evaluation plays one level of each category", "F94", "H27")
def _(plant: Plants) -> None:
    def changed(original, categories, *arguments):
        return np.array([categories.index(categories[i]) for i in original(categories, *arguments)])

    plant.around(suite._schedule, changed)


@fault("every evaluation draws other random numbers", "H22")
def _(plant: Plants) -> None:
    def changed(original, suite, policy, **named):
        suite.seed += 1
        return original(suite, policy, **named)

    plant.wrap(EvaluationSuite, "run", changed)


@fault("evaluations normalise with other statistics", "F72", "H20")
def _(plant: Plants) -> None:
    def changed(original, suite, policy, **named):
        if isinstance(policy, NppPolicy):
            with torch.random.fork_rng(devices=[]):
                other = build_policy(policy.architecture, policy.statistics)
            other.load_state_dict(policy.state_dict())
            other.features_extractor.normalize.mean += 1.0
            policy = other
        return original(suite, policy, **named)

    plant.wrap(EvaluationSuite, "run", changed)


def _played(plant: Plants, afterwards: Callable[[Any], object]) -> None:
    def changed(original, suite, policy, **named):
        episodes = original(suite, policy, **named)
        if isinstance(policy, NppPolicy):
            afterwards(policy)
        return episodes

    plant.wrap(EvaluationSuite, "run", changed)


@fault("evaluations draw from torch's own random numbers", "F43", "H20")
def _(plant: Plants) -> None:
    _played(plant, lambda policy: torch.rand(3))


@fault("evaluations leave rounded weights behind", "F43", "H20", flags=OFTEN)
def _(plant: Plants) -> None:
    @torch.no_grad()
    def rounded(policy):
        for parameter in policy.parameters():
            parameter.copy_(parameter.bfloat16().float())

    _played(plant, rounded)


@fault("the retention guard looks at training levels", "H21")
def _(plant: Plants) -> None:
    def changed(original, job, asked):
        suites = Suites(job.config, replace(job.data, dev=job.data.train))
        return original(replace(job, suites=suites), asked)

    plant.around(main_job.dev_evaluation, changed)


@fault("early stopping compares with a best that is never renewed", flags=OFTEN)
def _(plant: Plants) -> None:
    def changed(original, early, success):
        before = early.best
        stop = original(early, success)
        early.best = before
        return stop

    plant.wrap(EarlyStopping, "update", changed)


@fault("the first policy that is evaluated stays the best", "F96", flags=OFTEN)
def _(plant: Plants) -> None:
    def changed(original, retention, success, at):
        return original(retention, success, at) if retention.best is None else False

    plant.wrap(Retention, "consider", changed)


@fault("every policy that is evaluated is the best", "F96", flags=OFTEN)
def _(plant: Plants) -> None:
    def changed(original, retention, success, at):
        retention.best, retention.best_at = success, at
        return True

    plant.wrap(Retention, "consider", changed)


@fault("delivered are the latest weights, reported the best", "F94", flags=OFTEN)
def _(plant: Plants) -> None:
    plant.set(TrainingMonitor, "_restore_best", lambda monitor: None)


@fault("a roll-back leaves the optimiser where it was", "F41", flags=OFTEN)
def _(plant: Plants) -> None:
    plant.wrap(
        BatchPPO,
        "restore",
        lambda original, ppo, policy_state, *_: ppo.policy.load_state_dict(policy_state),
    )
