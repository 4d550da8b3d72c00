"""The report contains the given numbers, and "not run" for missing ones; event files are read back and checked."""

import html
import re

import numpy as np
import pytest
from PIL import Image

from nppsim.measure.intervals import wilson
from rl.evaluation.comparison import Comparison, SuccessDifference
from rl.events import EventsError, Scalars, open_events, require_tags
from rl.experiment.report import CHARTS, STAGE, curve_chart, stages, write_report

from results import BARE, architectures


def stats(wins, episodes):
    return {
        "episodes": episodes, "wins": wins, "success": wins / episodes, "ci95": list(wilson(wins, episodes)),
        "median_frames": 123.0 if wins else None, "deaths": episodes - wins, "timeouts": 0,
    }  # fmt: skip


def table(wins, episodes):
    return {"simple": stats(wins, episodes), "all": stats(wins, episodes)}


def comparison(first, second, difference, ci95):
    rows = {name: SuccessDifference(0.5 + difference, 0.5, difference, ci95) for name in ("simple", "all")}
    return Comparison(first, second, levels=100, seeds=1, categories=rows).to_dict()


def write_events(folder, tags=("rollout/success_rate", "train/approx_kl"), steps=(0, 100, 200)):
    with open_events(folder) as writer:
        for tag in tags:
            for step in steps:
                writer.add_scalar(tag, step / 200, step)
    return folder


@pytest.fixture
def experiment(tmp_path):
    write_events(tmp_path / "mlp" / "tensorboard", ("rollout/success_rate", "time/fps", "reward/win", "reward/time"))
    (tmp_path / "mlp" / "videos").mkdir()
    (tmp_path / "mlp" / "videos" / "a b.mp4").write_bytes(b"film")
    Image.new("RGB", (800, 400), "red").save(tmp_path / "mlp" / "a.png")
    film = {"category": "simple", "level_name": "l <1>", "outcome": "won", "frames": 90, "why": ""}
    scores = {"loss": 0.41, "accuracy": 0.876, "change_accuracy": 0.654, "recall": [0.5, None]}
    mlp = BARE | {
        "suites": {"test": table(93, 100)}, "train_success": 0.985,
        "baselines": {"random": table(1, 100), "bc": table(52, 100)},
        "bc": {
            "validation": scores, "training": scores, "baselines": {"repeat": scores | {"accuracy": 0.815}},
            "closed_loop": {"success": 0.52}, "best_epoch": 17,
            "history": [{"train_loss": 1.0 / (i + 1), "validation_accuracy": i / 9} for i in range(9)],
        },
        "comparisons": [comparison("mlp_baseline after PPO", "after imitation", 0.41, [0.31, 0.5])],
        "transfer": {"copied": 41, "fresh": ["value_head.weight", "value_head.bias"]},
        "settings": {"ppo.gamma": {"value": 0.99, "source": "command line"}, "x": {"value": 1, "source": "default"}},
        "speed": {"decisions_per_s": 51234.5, "share": {"environment": 0.125, "update": 0.875}},
        "folder": "mlp", "films": [
            film | {"video": "videos/a b.mp4", "route": "a.png"},
            film | {"video": "gone.mp4", "route": "gone.png", "outcome": "died", "why": "killed by a mine"},
        ],
    }  # fmt: skip
    labels = architectures(mlp_baseline=mlp, vision_free=BARE)
    labels["mlp_baseline"]["all_seeds"] = {
        "suites": {"test": table(280, 300)}, "baselines": {"random": None, "bc": None},
    }  # fmt: skip
    return {
        "name": "first <try>", "created": "2026-01-01 12:00", "machine": "two cores",
        "versions": {"numpy": "2.4.6"}, "architectures": labels, "audit": [{"term": "win", "per episode": 3.0}],
        "comparisons": [comparison("mlp_baseline", "vision_free", 0.01, [-0.02, 0.04])],
    }  # fmt: skip


def run_of(experiment, label):
    return experiment["architectures"][label]["seeds"]["0"]


def test_write_report_contains_numbers(tmp_path, experiment):
    page = write_report(experiment, tmp_path / "report.html").read_text()
    for text in (
        "first &lt;try&gt;", "93.0 %", "[86.3, 96.6]", "52.0 %", "1.0 %", "100 episodes · 7 died", "123 frames", "87.6 %",
        "65.4 %", "trivial: repeat", "81.5 %", "environment 12.5 %", "51,234", "611.5", "512", "41",
        "value_head.bias", "two cores", "2.4.6", "per episode",
        "l &lt;1&gt;", "1.500 s", "film missing: gone.mp4", "1.500 s: killed by a mine</figcaption>",
    ):  # fmt: skip
        assert text in page, text
    assert 'src="mlp/videos/a%20b.mp4"' in page
    assert page.count("data:image/png;base64,") == 2 + 1 + 2 + 1  # curves, rewards, cloning, route picture
    assert not re.search(r'(src|href)="(https?:)?//', page)  # nothing from the network
    assert "mlp_baseline finishes 93.0 % of 100 episodes on test levels (95 % interval 86.3 to 96.6 %)." in page
    assert "On training levels: 98.5 %, a gap of +5.5 points." in page
    assert "mlp_baseline after PPO finishes 41.0 points more than after imitation" in page
    assert "<b>+41.0 [31.0, 50.0]</b>" in page and "<td>+1.0 [-2.0, 4.0]</td>" in page
    assert "vision_free: not evaluated after PPO." in page


def test_write_report_next_step_events_and_plan(tmp_path, experiment):
    page = write_report(experiment, tmp_path / "report.html").read_text()
    assert "Next:" not in page  # there is no agent
    (tmp_path / "mlp" / "agent.safetensors").touch()
    entry = run_of(experiment, "mlp_baseline")
    entry["events"] = [
        {"at": 2000, "evaluation": {"simple": 0.25, "all": 0.5}},
        {"at": 4000, "rolled_back": "to the BC policy"},
        {"event": "advance", "stage": "simple", "reason": "early", "update": 7, "episode": 1234},
    ]
    page = texts(write_report(experiment, tmp_path / "report.html").read_text())
    assert f"python scripts/evaluate.py {tmp_path}/mlp/agent.safetensors --levels LEVELS --record-eval-videos" in page
    for row in (
        ["2,000 decisions", "evaluation", "all 50.0 %, simple 25.0 %"],
        ["4,000 decisions", "rolled back", "to the BC policy"],
        ["1,234 episodes", "advance", "simple: early"],
        ["updates", "489"],
        ["memory of the machine", "1.8 of 20.2 GB"],
    ):
        begin = page.index(row[0], page.index("Next:")) if row[0] != "updates" else page.index("489") - 1
        assert page[begin : begin + len(row)] == row


def texts(page):
    """Return the visible text, a line per element."""
    page = re.sub(r"<(style|title)>.*?</\1>", "", page, flags=re.DOTALL)
    lines = [" ".join(line.split()) for line in html.unescape(re.sub(r"<[^>]+>", "\n", page)).split("\n")]
    return [line for line in lines if line]


def with_scripts(value):
    """The same record with a script in every text of it, also in the names."""
    if isinstance(value, dict):
        return {with_scripts(k) if k in ("mlp_baseline", "simple", "repeat", "gamma", "term") else k: with_scripts(v)
                for k, v in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [with_scripts(item) for item in value]
    return f"{value}<script>" if isinstance(value, str) else value


def test_write_report_escapes_texts(tmp_path, experiment):
    hostile = with_scripts(experiment)
    (entry,) = (v for k, v in hostile["architectures"].items() if k.startswith("mlp"))
    for folder in ("mlp", "mlp<script>"):
        entry["seeds"]["0"]["folder"] = folder
        page = write_report(hostile, tmp_path / "report.html").read_text()
        assert "<script" not in page and page.count("&lt;script&gt;") > 20


def test_write_report_missing_sections(tmp_path, experiment):
    experiment |= {"architectures": architectures(a=BARE), "comparisons": []}
    page = write_report(experiment, tmp_path / "report.html").read_text()
    assert page.count("not run") >= 5
    assert "no TensorBoard event files" in page


def test_write_report_equal_random_play_has_one_column(tmp_path, experiment):
    runs = experiment["architectures"]
    for name, won, titles in (("same", 1, 5), ("other", 2, 6)):
        baselines = {"random": table(won, 100), "bc": table(50, 100)}
        runs |= architectures(vision_free=BARE | {"suites": {"test": table(60, 100)}, "baselines": baselines})
        runs["mlp_baseline"].pop("all_seeds", None)
        page = texts(write_report(experiment, tmp_path / f"{name}.html").read_text())
        begin = page.index("category")
        assert page[begin + 1 : begin + 1 + titles].count("random play") == titles - 4
        assert page[begin + 1 : begin + 3] == ["after PPO", "after imitation"], "what matters first"
        assert page[begin + titles] == "random play"


def test_write_report_distillation_charts(tmp_path, experiment):
    assert "Divergence from the teacher" not in write_report(experiment, tmp_path / "report.html").read_text()
    write_events(tmp_path / "mlp" / "tensorboard", ("bc/teacher/divergence", "bc/teacher/success"), (1, 2, 3))
    page = write_report(experiment, tmp_path / "report.html").read_text()
    for title in ("Divergence from the teacher, mlp_baseline", "Success during distillation, mlp_baseline"):
        assert f'alt="{title}"' in page


def test_write_report_charts_without_data_name_tags(tmp_path, experiment):
    page = write_report(experiment, tmp_path / "report.html").read_text()
    assert "Explained variance of the critic: not logged (train/explained_variance)" in page
    shown = sum(f'alt="{chart.title}"' in page for chart in CHARTS)
    assert shown == 2


def test_require_tags_missing_tag_or_second_folder_raises(tmp_path):
    with pytest.raises(EventsError, match="no TensorBoard event files"):
        require_tags(tmp_path, ["a"])
    write_events(tmp_path / "PPO_1")
    assert "train/approx_kl" in require_tags(tmp_path, ["train/approx_kl"])
    with pytest.raises(EventsError, match="time/fps, train/loss"):
        require_tags(tmp_path, ["train/loss", "train/approx_kl", "time/fps"])
    open_events(tmp_path / "training").close()  # opened, never written to
    with pytest.raises(EventsError, match=r"2 folders with event files \(PPO_1, training\)"):
        require_tags(tmp_path, ["train/approx_kl"])


def test_stages_returns_begin_and_name():
    steps = np.array([100, 200, 300, 400])
    run = {
        STAGE: Scalars(steps, np.array([0.0, 1.0, 1.0, 2.0])),
        **{f"curriculum_stages/{name}_share": Scalars(steps, np.ones(4)) for name in ("own", "simplest", "complex")},
    }
    for i, name in enumerate(("own", "complex", "simplest")):
        run[f"curriculum_stages/{name}_place"] = Scalars(steps, np.full(4, i))
    assert stages(run) == [(100, "own"), (200, "complex"), (400, "simplest")]
    assert stages({}) == []
    (chart,) = (one for one in CHARTS if one.steps)
    assert curve_chart(chart, {"run": run}, {"run": stages(run)})


def test_write_report_equal_parts_shown_once(tmp_path, experiment):
    one = run_of(experiment, "mlp_baseline")
    experiment["architectures"] = architectures(a=one, b=one)
    page = texts(write_report(experiment, tmp_path / "report.html").read_text())
    assert page.count("ppo.gamma") == 1
