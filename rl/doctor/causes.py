"""What differs between trainings beside their numbers, and which of that explains where they part.

found = differences([old.facts, new.facts])
explained(divergence, found)      # "because ppo.gae_lambda 0.95 → 0.92"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nppsim.files import table
from rl.doctor.digests import Divergence
from rl.doctor.runs import PARTS, PLACES, Fact

ABSENT = Fact("–")  # where a training does not tell: another version of the project
COLUMNS = {2: ("old", "new"), 3: ("old", "broken", "fixed")}
_LONGEST = 60  # characters of a value that are shown
_DATA = ("data.train",)
_SIZES = (
    "settings.plan.num_envs",
    "settings.hardware.num_envs",
    "settings.plan.rollout_length",
    "settings.hardware.rollout_length",
)
_ARITHMETIC = (
    "settings.plan.precision",
    "settings.hardware.mixed_precision",
    "settings.plan.device",
    "settings.plan.torch_threads",
)
_IMITATION = (
    "settings.bc.", "data.demonstrations", "settings.pretraining", "settings.test_pretraining",
    "settings.mirror_demonstrations", "settings.max_demonstrations_per_category",
)  # fmt: skip
_START = ("settings.architecture", "settings.seed")
_STEPS = (
    "settings.ppo.learning_rate", "settings.plan.learning_rate", "settings.ppo.anneal_learning_rate",
    "settings.ppo.desired_kl", "settings.ppo.total_timesteps", "settings.ppo.time_budget_minutes",
)  # fmt: skip
# Part -> beginnings of the names of what acts on it first, the likeliest first.
CAUSES = {
    "observations": (*_START, "settings.frame_skip", *_SIZES, *_DATA, "settings.curriculum."),
    "log_probs": (*_START, *_ARITHMETIC, *_SIZES),
    "values": (*_START, *_ARITHMETIC, *_SIZES),
    "actions": (*_START, *_SIZES),
    "rewards": ("settings.reward.", "settings.ppo.gamma", "settings.frame_skip"),
    "episode_ends": ("settings.frame_skip", *_DATA),
    "advantages": ("settings.ppo.gae_lambda", "settings.ppo.gamma"),
    "returns": ("settings.ppo.gae_lambda", "settings.ppo.gamma"),
    "curriculum": ("settings.curriculum.", "settings.seed", *_DATA),
    "environments": (*_DATA, *_SIZES, "settings.seed"),
    "parameters": (
        *_START, *_IMITATION, "settings.ppo.", "settings.plan.epochs", "settings.plan.minibatch_size", *_ARITHMETIC, *_DATA,
    ),
    "optimiser": (*_START, *_STEPS, "settings.ppo."),
    "random": ("settings.seed", "settings.plan.minibatch_size", "settings.ppo.n_epochs", "settings.plan.epochs"),
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A fact that is not the same in all trainings: part and name as in ``Run.facts``, and its value in each."""

    part: str
    name: str
    values: tuple[Fact, ...]

    def __str__(self) -> str:
        return f"{self.name} {' → '.join(fact.value for fact in self.values)}"


def differences(runs: Sequence[Mapping[str, Mapping[str, Fact]]]) -> list[Difference]:
    """Every fact in which these differ; what one of them does not know is absent there, and so a difference."""
    found = []
    for part in PARTS:
        tables = [facts.get(part, {}) for facts in runs]
        for name in dict.fromkeys(name for facts in tables for name in facts):
            values = tuple(facts.get(name, ABSENT) for facts in tables)
            if len({fact.value for fact in values}) > 1:
                found.append(Difference(part, name, values))
    return found


def difference_table(found: Sequence[Difference], columns: Sequence[str]) -> str:
    """For people: a row for each difference, with the source of each value where it is known."""
    rows = [(row.part, row.name, *(_short(str(fact)) for fact in row.values)) for row in found]
    return table(("what", "name", *columns), rows, "l" * (2 + len(columns)))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def explained(divergence: Divergence, found: Sequence[Difference]) -> str:
    """Why trails part, as far as what is recorded explains it, beginning with "because" or "and"."""
    known = [row for row in found if ABSENT not in row.values and row.name not in PLACES]
    for cause in CAUSES.get(divergence.part, ()):
        chosen = [row for row in known if f"{row.part}.{row.name}".startswith(cause)]
        if chosen:
            return f"because {', '.join(map(str, chosen[:3]))}"
    for part, why in (
        ("settings", "perhaps because of"),
        ("data", "perhaps because of other data:"),
        ("versions", "perhaps because of other versions:"),
        ("machine", "perhaps because of another machine:"),
        ("environment", "perhaps because of the environment:"),
    ):
        chosen = [row for row in known if row.part == part]
        if chosen:
            return f"{why} {', '.join(map(str, chosen[:3]))}"
    if divergence.schedule:
        told = ", ".join(f"{name} {a:g} → {b:g}" for name, (a, b) in divergence.schedule.items())
        return f"because of the schedule ({told}): a time budget makes it follow the clock"
    return "and nothing that is recorded differs: look for what does not repeat (threads, GPU, a fault), or a resume"
