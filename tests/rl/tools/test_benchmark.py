"""The command line of the benchmark: run, score, table, generate."""

import json

import pytest

from nppsim.gym.benchmark import level_set
from scripts.benchmark import main


def test_run_score_and_table_of_random_play(tmp_path, capsys):
    out = tmp_path / "random"
    given = ["random", "--levels", "hard/dev", "--num-levels", "2", "--seed", "3", "--workers", "1", "--out", str(out)]
    assert main(["run", *given]) == 0
    assert json.loads((out / "submission.json").read_text())["track"] == "pixels"
    assert (out / "score.json").is_file()
    assert main(["table", str(out), "--out", str(tmp_path / "table.json")]) == 0
    assert "random" in capsys.readouterr().out
    assert json.loads((tmp_path / "table.json").read_text())[0]["levels"] == "hard/dev"
    assert main(["run", *given]) == 2 and f"--out {out}: exists" in capsys.readouterr().err
    assert main(["score", str(out)]) == 0  # on the whole split: levels without a replay are lost
    assert "of 300 levels" in capsys.readouterr().out


def test_generate_gives_the_shipped_levels(tmp_path):
    assert main(["generate", "hard/dev", "--count", "1", "--workers", "1", "--out", str(tmp_path)]) == 0
    (made,) = json.loads((tmp_path / "index.json").read_text())["levels"]
    shipped = level_set("hard/dev").entries[0]
    assert (made["fingerprint"], made["par_frames"]) == (shipped.fingerprint, shipped.par_frames)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (
            "hard/tset",
            "split hard/tset: is neither hard/train, hard/dev, hard/test nor a file; did you mean 'hard/test'",
        ),
        ("seed.json", "is not the file with SHA-256"),
    ],
)
def test_generate_unknown_split_is_an_error(tmp_path, monkeypatch, capsys, split, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seed.json").write_text('{"seed": 1}')
    assert main(["generate", split, "--out", "levels"]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "levels").exists()
