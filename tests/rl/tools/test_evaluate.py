"""Evaluation in batches that several processes share."""

from nppsim.simulate import simulate
from rl.policy.player import PickledPolicy
from rl.policy.policy import build_policy
from rl.search.guided_search import GuidePolicy
from rl.tools import evaluate
from rl.tools.evaluate import PlaySettings, live_results, play

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


def test_play_live_adds_an_episode_per_level(one_thread):
    policy = build_policy("vision_free", statistics()).eval()
    how = PlaySettings(
        PickledPolicy.of(policy),
        4,
        episodes_per_level=2,
        seed=0,
        deterministic=True,
        patience=0,
        horizon=0,
        baselines=False,
        live=PickledPolicy.of(GuidePolicy(policy, 4)),
    )
    levels = list(zip(LEVELS[:2], CATEGORIES[:2], strict=True))
    found = play(how, levels, progress=lambda count: None, workers=1)
    assert len(found[evaluate.AGENT]) == 4
    assert [episode.level_index for episode in found[evaluate.LIVE]] == [0, 1]
    for episode, (level, _) in zip(found[evaluate.LIVE], levels, strict=True):
        assert episode.won
        assert simulate(level, episode.inputs).won
    for entry in live_results(found[evaluate.LIVE]):
        begin, end, planned = entry["thoughts"][0]
        assert 0 == begin < end <= planned / 15
