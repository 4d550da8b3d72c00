"""High level of a hierarchical policy: it chooses subtasks, which condition the features of the low level.

    commander = Commander(features=256)
    commander(features, observations)               # float[N, 256]: features for the low level
    logits, values = commander.choose(features, observations)     # of the subtasks, float32[N, 5], and float32[N]

The active subtask is an observation, COMMAND: int64[N, 2], its index and the decisions since it was chosen.  It is therefore
stored with each decision, and the update evaluates the decision under the same subtask.  With index NO_SUBTASK the features
are those of the plain network.  Without this observation, the most probable subtask is chosen, as at the start of an episode.

The conditioning weights are initially zero, so weights of a plain policy act unchanged.
Source: Sutton, Precup & Singh 1999 (options).
"""

from collections.abc import Mapping

import torch
from torch import nn

from nppsim.observe import layout

SUBTASKS = ("exit_switch", "locked_door", "exit", "mine", "explore")
EXIT_SWITCH, LOCKED_DOOR, EXIT, MINE, EXPLORE = range(len(SUBTASKS))
COMMAND = "command"  # key of the observation
NO_SUBTASK = -1  # index without a subtask
NEAR_PX = 120.0  # unit of offsets to a target
PER_SUBTASK = 5  # features of a command: active, age, offset (2), distance
HIDDEN = 64
IMPOSSIBLE = -1e9  # logit of a subtask without a target

Seen = Mapping[str, torch.Tensor]

_DOORS = len(layout.SPECS["switch_states"].components) // layout.NUM_DOORS
_PLACE = layout.slots(layout.SPECS["entity_positions"].components)
_WAY = layout.slots(layout.SPECS["reachability_features"].components)
_HAZARD = layout.slots(layout.SPECS["hazards"].components)


class Commander(nn.Module):
    """Subtask policy, value function and conditioning.

    features: size of the encoder's output.
    longest: largest number of decisions of a subtask; also the unit of its age.
    """

    def __init__(self, features: int, longest: int):
        super().__init__()
        self.longest = longest
        # a parameter instead of a layer: without a subtask it is unused and has no gradient
        self.condition = nn.Parameter(torch.zeros(features, len(SUBTASKS) * PER_SUBTASK))
        last = nn.Linear(HIDDEN, len(SUBTASKS))
        nn.init.orthogonal_(last.weight, 0.01)  # initially all possible subtasks are equally likely
        self.policy_net = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), last)
        self.value_net = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, features: torch.Tensor, observations: Seen) -> torch.Tensor:
        """Conditioned features for the low level, float[N, F]."""
        if COMMAND in observations:
            command = observations[COMMAND]
            if bool((command[:, 0] == NO_SUBTASK).all()):
                return features
        else:
            chosen = self.choose(features, observations)[0].argmax(dim=1)
            command = torch.stack([chosen, torch.zeros_like(chosen)], dim=1)
        return features + described(observations, command, self.longest) @ self.condition.T

    def choose(self, features: torch.Tensor, observations: Seen) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits float32[N, 5] of the subtasks, IMPOSSIBLE without a target, and values float32[N]."""
        with torch.autocast(features.device.type, enabled=False):
            full = features.float()
            logits = self.policy_net(full).masked_fill(~possible(observations), IMPOSSIBLE)
            return logits, self.value_net(full)[:, 0]


def possible(observations: Seen) -> torch.Tensor:
    """Possible subtasks bool[N, 5]: switch not taken, closed door, exit open, hazard observed; exploring always."""
    collected = observations["reachability_features"][:, _WAY.switch_collected] > 0
    there, closed, _ = _doors(observations)
    near = (_hazards(observations)[..., _HAZARD.radius] > 0).any(dim=1)
    return torch.stack([~collected, (there & closed).any(dim=1), collected, near, torch.ones_like(near)], dim=1)


def targets(observations: Seen) -> torch.Tensor:
    """Offsets float32[N, 5, 2], px, from the ninja to the target of each subtask; 0 without a target.

    Targets are the door with the nearest switch, the nearest hazard, and for exploring the second waypoint.
    """
    places, way = observations["entity_positions"], observations["reachability_features"]
    ninja = places[:, _PLACE.ninja_x : _PLACE.ninja_y + 1]
    there, closed, switches = _doors(observations)
    away = switches - ninja[:, None]
    far = away.square().sum(dim=2).masked_fill(~(there & closed), torch.inf)
    hazard = _hazards(observations)[:, 0]
    found = torch.stack(
        [
            places[:, _PLACE.switch_x : _PLACE.switch_y + 1] - ninja,
            away[torch.arange(len(far), device=far.device), far.argmin(dim=1)],
            places[:, _PLACE.exit_x : _PLACE.exit_y + 1] - ninja,
            hazard[:, _HAZARD.dx : _HAZARD.dy + 1],
            way[:, _WAY.waypoint2_dx : _WAY.waypoint2_dy + 1],
        ],
        dim=1,
    )
    return found.masked_fill(~possible(observations)[:, :, None], 0.0)


def described(observations: Seen, command: torch.Tensor, longest: int) -> torch.Tensor:
    """Command features float32[N, 25]: 1, age, offset and distance in the columns of the active subtask, else 0.

    command: int64[N, 2].  longest: decisions, the unit of time.
    """
    chosen = command[:, 0].clamp(min=0)
    offset = targets(observations)[torch.arange(len(chosen), device=chosen.device), chosen] / NEAR_PX
    offset = offset / offset.norm(dim=1, keepdim=True).clamp(min=1.0).sqrt()  # compress large distances
    distance = offset.norm(dim=1)
    time = command[:, 1].float() / longest
    values = torch.stack([torch.ones_like(time), time, offset[:, 0], offset[:, 1], distance], dim=1)
    given = nn.functional.one_hot(chosen, len(SUBTASKS)) * (command[:, :1] != NO_SUBTASK)
    return (given[:, :, None] * values[:, None]).flatten(1)


def _doors(observations: Seen) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Listed doors: exists bool[N, 5], closed bool[N, 5], position of the switch float32[N, 5, 2], px."""
    doors = observations["switch_states"].unflatten(1, (layout.NUM_DOORS, _DOORS))
    return doors[..., :2].any(dim=2), doors[..., _DOORS - 1] == 0, doors[..., :2]


def _hazards(observations: Seen) -> torch.Tensor:
    """Hazards float32[N, 8, 5], nearest first."""
    return observations["hazards"].reshape(-1, *layout.SPECS["hazards"].shape)
