"""docs/rewards.md: it lists every term, flag and preset; its examples run."""

import doctest
import re

from nppsim.reward import PRESETS, TERMS
from nppsim.settings import settings_of
from rl.config.command_line import resolve
from rl.config.rewards import POTENTIALS, RewardSettings
from rl.experiment.data import audit_rewards, load_data

from places import ROOT
from worlds import SPARSE_REWARDS

PAGE = ROOT / "docs" / "rewards.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_terms_and_flags_are_listed():
    listed = dict(re.findall(r"^\| `(\w+)` \| `--([\w-]+)` \|", TEXT, re.MULTILINE))
    assert listed == {name: settings_of(RewardSettings)[name].flag for name in TERMS}


def test_presets_are_listed_with_weights():
    header, *rows = re.findall(r"^\| (?:preset|`\w+`) \|(?: [\w.-]+ \|){9}$", TEXT, re.MULTILINE)
    names = [cell.strip() for cell in header.split("|")[2:-1]]
    kinds = {number: name for name, number in POTENTIALS.items()}
    for row in rows:
        preset, *cells = (cell.strip(" `") for cell in row.split("|")[1:-1])
        weights = PRESETS[preset]
        output = dict(zip(names, cells, strict=True))
        assert output.pop("potential") == kinds[weights.potential]
        assert {name: float(value) for name, value in output.items()} == {
            name: getattr(weights, name) for name in TERMS
        }
    assert {row.split("`")[1] for row in rows} == set(PRESETS)


def test_examples_run():
    example = doctest.DocTestParser().get_doctest(TEXT, {}, "rewards", str(PAGE), 0)
    assert example.examples
    output = []
    doctest.DocTestRunner(verbose=False).run(example, out=output.append)
    assert not output, "".join(output)


def test_rewarding_death_prints_warning(monkeypatch):
    monkeypatch.setitem(PRESETS, "sparse", SPARSE_REWARDS)
    level = str(ROOT / "nppsim" / "starter" / "simple" / "000000.map")
    given = ["--experiment-name", "x", "--architectures", "vision_free", "--single-level", level]
    given += ["--reward-preset", "sparse"]
    data = load_data(resolve(given), print)
    messages, forced = [], []
    audit_rewards(resolve(given), data, messages.append)
    assert any("warning: dying" in line and "on single (path" in line and "--force" in line for line in messages)
    rows = audit_rewards(resolve([*given, "--force"]), data, forced.append)
    assert not any("warning: dying" in line for line in forced)
    assert any("an immediate death" in problem for row in rows for problem in row.problems)
