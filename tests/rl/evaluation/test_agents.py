"""The shipped agents (``datasets/agents``) load, are small, and succeed as documented."""

import pytest

from rl.evaluation.suite import EvaluationSuite
from rl.policy import checkpoint

from places import ROOT

AGENTS = sorted((ROOT / "datasets" / "agents").glob("*.safetensors"))


def test_datasets_contain_an_agent():
    assert AGENTS


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.stem)
def test_shipped_agent_wins_dev_levels(path):
    assert path.stat().st_size < 2e6
    policy, about = checkpoint.load_policy(path)
    assert policy.architecture.partition("+")[0] == path.stem
    assert about["training"] is None
    suite = EvaluationSuite(
        ROOT / "datasets" / "dev",
        episodes_per_category=2,
        seed=0,
        frame_skip=about["frame_skip"],
        patience=0,
        horizon=0,
    )
    assert sum(episode.won for episode in suite.run(policy, deterministic=False)) >= 18  # of 20
