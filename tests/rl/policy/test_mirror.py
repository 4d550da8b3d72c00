"""Networks that treat left and right equally: NAME+mirror."""

import numpy as np
import pytest
import torch

from nppsim.actions import MIRRORED_ACTION
from nppsim.batch import BatchSimulator
from nppsim.levels.level import mirror
from nppsim.levels.level_set import LevelSet
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.policy.architectures import ArchitectureError, get_architecture
from rl.policy.mirror import mirror_image
from rl.policy.policy import build_policy

from places import ROOT

KEYS = tuple(key for key in layout.ALL if key != "graph_state")
TOLERANCE = {
    "surroundings": 20,
    "player_frame": 255,
    "global_view": 255,
}  # grey values: rounding of edges and positions


@pytest.fixture(scope="module")
def played():
    """Observations of shipped levels after some decisions, and those of the mirrored levels after mirrored decisions."""
    levels = [level for i, level in enumerate(LevelSet.open(ROOT / "datasets" / "dev")) if i % 15 == 0]
    rng, both = np.random.default_rng(0), []
    actions = rng.integers(0, 6, (12, len(levels)))
    for own, chosen in ((levels, actions), (list(map(mirror, levels)), MIRRORED_ACTION[actions])):
        sim = BatchSimulator(own, len(levels), observations=KEYS, threads=1)
        seen = sim.reset(np.arange(len(levels), dtype=np.int32))
        running = np.ones(len(levels), bool)
        for row in chosen:
            seen = sim.step(row)
            running[sim.finished] = False
        both.append((running, {key: torch.from_numpy(seen[key].copy()) for key in KEYS}))
        sim.close()
    running = both[0][0] & both[1][0]
    assert running.sum() > 5
    return [{key: values[torch.from_numpy(running)] for key, values in seen.items()} for _, seen in both]


@pytest.mark.parametrize("key", KEYS)
def test_mirror_image_is_the_observation_of_the_mirrored_level(played, key):
    own, other = played
    found, wanted = mirror_image(key, own[key]).double(), other[key].double()
    near = (found - wanted).abs() <= TOLERANCE.get(key, 1e-2)
    assert near.double().mean() > 0.97  # paths, hazards at equal distances and edges of pictures may differ
    assert ((found - wanted).abs() > 30).double().mean() < 0.03
    assert not torch.equal(own[key], other[key])


@pytest.mark.parametrize("key", KEYS)
def test_mirror_image_twice_is_identity(played, key):
    twice = mirror_image(key, mirror_image(key, played[0][key]))
    assert torch.allclose(twice.double(), played[0][key].double(), atol=1e-4)
    flat = played[0][key].flatten(1)
    assert torch.equal(mirror_image(key, flat), mirror_image(key, played[0][key]).flatten(1))


@pytest.mark.parametrize("name", ["vision_free_foresight+mirror", "mlp_baseline+mirror", "vision_free+mirror+deep2"])
def test_outputs_for_mirror_images_are_mirrored(played, name):
    policy = build_policy(name)
    statistics = ObservationStatistics(policy.observations)
    statistics.update({key: played[0][key].numpy() for key in statistics.float_keys})
    policy.set_statistics(statistics)
    own = {key: played[0][key] for key in policy.observations}
    mirrored = {key: mirror_image(key, values) for key, values in own.items()}
    with torch.no_grad():
        logits, values = policy.logits_and_values(own)
        other, also = policy.logits_and_values(mirrored)
    assert torch.allclose(logits, other[:, MIRRORED_ACTION.tolist()], atol=1e-4)
    assert torch.allclose(values, also, atol=1e-4)


def test_weights_equal_plain_network():
    plain, mirrored = build_policy("vision_free"), build_policy("vision_free+mirror")
    mirrored.load_state_dict(plain.state_dict())


@pytest.mark.parametrize(
    "name", ["gcn+mirror", "vision_free+state4+mirror", "vision_free+mirror+gru", "vision_free+mirror+mirror"]
)
def test_combinations_without_mirror_images_are_refused(name):
    with pytest.raises(ArchitectureError, match="mirror"):
        get_architecture(name)
