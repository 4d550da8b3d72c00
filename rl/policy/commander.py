"""The high level of a hierarchical policy: it chooses subtasks, which the low level's features then depend on.

    commander = Commander(features=256)
    commander(features, observations)               # float[N, 256]: features as the low level sees them
    logits, values = commander.choose(features, observations)     # of the subtasks, float32[N, 5], and float32[N]

The subtask in force is an observation like others, COMMAND: int64[N, 2], its number and the decisions since it was given.
So it is stored with the decision it led to, and the update looks at that decision as it was made.  NO_SUBTASK in place of a
number means that there is no subtask: the features are then those of the plain network.  Where the observation is absent, the
commander gives the likeliest subtask anew, as at the start of an episode.

What makes the difference is zero before anything is learned, so that a plain policy's weights act here as they did there.
Source: Sutton, Precup & Singh 1999 (options); the subtasks are those that this project's predecessor meant to have.
"""

from collections.abc import Mapping

import torch
from torch import nn

from nppsim.observe import layout

SUBTASKS = ("exit_switch", "locked_door", "exit", "mine", "explore")
EXIT_SWITCH, LOCKED_DOOR, EXIT, MINE, EXPLORE = range(len(SUBTASKS))
COMMAND = "command"  # key of the observation
NO_SUBTASK = -1  # number of the subtask where there is none
NEAR_PX = 120.0  # length that offsets to a target are measured in
PER_SUBTASK = 5  # numbers that describe a command: that it is given, for how long, and where its target is
HIDDEN = 64
IMPOSSIBLE = -1e9  # logit of a subtask that there is nothing to do for

Seen = Mapping[str, torch.Tensor]

_DOORS = len(layout.SPECS["switch_states"].components) // layout.NUM_DOORS
_PLACE = layout.slots(layout.SPECS["entity_positions"].components)
_WAY = layout.slots(layout.SPECS["reachability_features"].components)
_HAZARD = layout.slots(layout.SPECS["hazards"].components)


class Commander(nn.Module):
    """Chooses subtasks, and tells the low level what they are.

    features: size of the encoder's output.
    longest: decisions after which a subtask ends at the latest; time in it counts in this unit.
    """

    def __init__(self, features: int, longest: int):
        super().__init__()
        self.longest = longest
        # A parameter, and no layer: while no subtask is given it has no gradient, and nobody asks it.
        self.condition = nn.Parameter(torch.zeros(features, len(SUBTASKS) * PER_SUBTASK))
        last = nn.Linear(HIDDEN, len(SUBTASKS))
        nn.init.orthogonal_(last.weight, 0.01)  # at first all that is possible is as likely
        self.policy_net = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), last)
        self.value_net = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, features: torch.Tensor, observations: Seen) -> torch.Tensor:
        """The features as the low level sees them, float[N, F]."""
        if COMMAND in observations:
            command = observations[COMMAND]
            if bool((command[:, 0] == NO_SUBTASK).all()):
                return features
        else:
            chosen = self.choose(features, observations)[0].argmax(dim=1)
            command = torch.stack([chosen, torch.zeros_like(chosen)], dim=1)
        return features + described(observations, command, self.longest) @ self.condition.T

    def choose(self, features: torch.Tensor, observations: Seen) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits float32[N, 5] of the subtasks, IMPOSSIBLE where there is nothing to do, and values float32[N]."""
        with torch.autocast(features.device.type, enabled=False):
            whole = features.float()
            logits = self.policy_net(whole).masked_fill(~possible(observations), IMPOSSIBLE)
            return logits, self.value_net(whole)[:, 0]


def possible(observations: Seen) -> torch.Tensor:
    """bool[N, 5]: whether there is something to do: a switch left, a door closed, an exit open, a hazard near.

    Exploring is always possible.
    """
    collected = observations["reachability_features"][:, _WAY.switch_collected] > 0
    there, closed, _ = _doors(observations)
    near = (_hazards(observations)[..., _HAZARD.radius] > 0).any(dim=1)
    return torch.stack([~collected, (there & closed).any(dim=1), collected, near, torch.ones_like(near)], dim=1)


def targets(observations: Seen) -> torch.Tensor:
    """float32[N, 5, 2]: offset, px, from the ninja to what each subtask is about; 0 where there is nothing.

    Of several doors the one whose switch is nearest, of hazards the nearest; for exploring the second way-point.
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
    """float32[N, 25]: what the low level is told; in the columns of the subtask given: 1, time in it, offset and distance.

    command: int64[N, 2].  longest: decisions, the unit of time.
    """
    chosen = command[:, 0].clamp(min=0)
    offset = targets(observations)[torch.arange(len(chosen), device=chosen.device), chosen] / NEAR_PX
    offset = offset / offset.norm(dim=1, keepdim=True).clamp(min=1.0).sqrt()  # what is far away need not be exact
    distance = offset.norm(dim=1)
    time = command[:, 1].float() / longest
    told = torch.stack([torch.ones_like(time), time, offset[:, 0], offset[:, 1], distance], dim=1)
    given = nn.functional.one_hot(chosen, len(SUBTASKS)) * (command[:, :1] != NO_SUBTASK)
    return (given[:, :, None] * told[:, None]).flatten(1)


def _doors(observations: Seen) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the doors listed: bool[N, 5] whether there is one, and whether it is closed, float32[N, 5, 2] its switch, px."""
    doors = observations["switch_states"].unflatten(1, (layout.NUM_DOORS, _DOORS))
    return doors[..., :2].any(dim=2), doors[..., _DOORS - 1] == 0, doors[..., :2]


def _hazards(observations: Seen) -> torch.Tensor:
    """float32[N, 8, 5], nearest first."""
    return observations["hazards"].reshape(-1, *layout.SPECS["hazards"].shape)
