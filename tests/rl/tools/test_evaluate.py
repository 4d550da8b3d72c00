"""Evaluation in batches that several processes share."""

from rl.policy.player import PickledPolicy
from rl.policy.policy import build_policy
from rl.tools import evaluate
from rl.tools.evaluate import PlaySettings, play

from learners import CATEGORIES, LEVELS, statistics


def test_play_batches_have_own_seeds(monkeypatch, one_thread):
    """One level, one episode in each batch: with the same random numbers both would be the same episode."""
    monkeypatch.setattr(evaluate, "BATCH_EPISODES", 1)
    policy = build_policy("vision_free", statistics())
    how = PlaySettings(
        PickledPolicy.of(policy), 4, episodes_per_level=1, seed=0, deterministic=False, patience=0, horizon=0
    )
    level = (LEVELS[0], CATEGORIES[0])
    found = play(how, [level, level], progress=lambda count: None, workers=1)
    for first, second in (found[evaluate.AGENT], found[evaluate.RANDOM]):
        assert first.inputs[:40].tobytes() != second.inputs[:40].tobytes()
