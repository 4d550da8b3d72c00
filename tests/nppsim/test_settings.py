"""Settings: one dataclass field has default, flag, help and limits; parsers and messages follow from it."""

from dataclasses import MISSING, dataclass
from pathlib import Path

import pytest

from nppsim.errors import ConfigError
from nppsim.settings import Parser, Setting, check_settings, same_setting, setting, settings_of


@dataclass(frozen=True)
class OptimizerSettings:
    """A setting of each kind."""

    name: str = setting(MISSING, "of the run", flag="name")
    epochs: int = setting(2, "passes over the data", flag="epochs", aliases=("rounds",), low=1, high=9)
    dropout: float | None = setting(None, "rate", flag="dropout", above=0, below=1)
    widths: tuple[int, ...] = setting((3,), "of each layer", flag="widths", low=0)
    amsgrad: bool = setting(False, "limit steps", flag="amsgrad")
    shuffle: bool = setting(True, "keep the order", flag="no-shuffle")
    cache: bool = setting(True, "cache data", flag="cache", switch=True)
    out: Path = setting(Path("out"), "folder", flag="out")
    optimizer: str = setting("adam", "kind", flag="optimizer", choices=("adam", "sgd"))
    momentum: float = setting(0.5, "without a flag", low=0)
    seed: int = 0

    def __post_init__(self):
        check_settings(self)
        if self.amsgrad and self.optimizer == "sgd":
            raise ConfigError("sgd has none", "amsgrad")


@dataclass(frozen=True)
class Evaluation:
    epochs: int = same_setting(OptimizerSettings, "epochs")
    batches: int = setting(1, "number", low=1)

    def __post_init__(self):
        check_settings(self)


def parser_of(*owners):
    parser = Parser(prog="train")
    for owner in owners:
        parser.add_settings(owner)
    return parser


def built(*argv):
    parser = parser_of(OptimizerSettings)
    return parser.build(OptimizerSettings, parser.parse_args(["--name", "first", *argv]))


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        ("", "epochs", 2),
        ("--epochs 3", "epochs", 3),
        ("--rounds 3", "epochs", 3),
        ("--dropout 0.25", "dropout", 0.25),
        ("--dropout 2.5e-1", "dropout", 0.25),
        ("--widths 1 2", "widths", (1, 2)),
        ("--amsgrad --optimizer adam", "amsgrad", True),
        ("--no-shuffle", "shuffle", False),
        ("--no-cache", "cache", False),
        ("--cache", "cache", True),
        ("--out a/b", "out", Path("a/b")),
        ("--out tr:out/s3:", "out", Path("tr:out/s3:")),
    ],
)
def test_build_flag_sets_its_field(argv, field, value):
    assert getattr(built(*argv.split()), field) == value


LARGE = "of at least 0 and at most 1,000,000,000,000$"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--epochs 0", "--epochs 0: give a whole number from 1 to 9"),
        ("--rounds 10", "--epochs 10: give a whole number from 1 to 9"),
        ("--epochs two", "argument --epochs/--rounds: 'two' is not a whole number"),
        ("--dropout 1", "--dropout 1.0: give a number above 0 and below 1"),
        ("--dropout nan", "--dropout nan: give a number above 0 and below 1"),
        ("--dropout -1e-4", "--dropout -0.0001: give a number above 0"),
        ("--dropout -.5E-3", "--dropout -0.0005: give a number above 0"),
        ("--widths 1 1e20", f"--widths 1 100000000000000000000: give whole numbers {LARGE}"),
        ("--widths 1 -2", "--widths 1 -2: give whole numbers of at least 0"),
        ("--optimizer lamb", r"argument --optimizer: invalid choice: 'lamb' \(choose from 'adam', 'sgd'\)"),
        ("--amsgrad --optimizer sgd", "--amsgrad: sgd has none"),
        ("--epoch 3", "unknown flag --epoch; did you mean '--epochs'?"),
        ("--token=hunter2", r"unknown flag --token; --help lists all flags$"),
        ("--epochs 3 4", "unexpected argument '4'"),
        *(
            (f"--out {url}", "--out .*: is not on this machine; give a local path")
            for url in ("s3://bucket/runs", "gs://bucket", "https://host/levels")
        ),
    ],
)
def test_build_invalid_value_raises_with_the_flag(argv, message):
    with pytest.raises(ConfigError, match=message):
        built(*argv.split())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 2.5}, "epochs 2.5: give a whole number from 1 to 9"),
        ({"epochs": True}, "epochs True: give a whole number"),
        ({"dropout": "weak"}, "dropout weak: give a number above 0"),
        ({"momentum": -1.0}, "momentum -1.0: give a number of at least 0"),
        ({"momentum": float("inf")}, "momentum inf: give a number"),
        ({"momentum": 1e10}, "momentum 10000000000.0: give a number of at least 0 and at most 1,000,000,000.0"),
        ({"momentum": 10**400}, "momentum 10+: give a number of at least 0 and at most"),
    ],
)
def test_check_settings_invalid_value_raises_with_the_field(values, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        OptimizerSettings("first", **values)


@pytest.mark.parametrize(("kind", "largest"), [(int, "1,000,000,000,000"), (float, "1,000,000,000.0")])
def test_problem_number_without_limits_has_a_largest_size(kind, largest):
    known = Setting("a number", kind=kind)
    assert known.problem(kind(10**20)).endswith(f"number at most {largest}")
    assert known.problem(kind(-(10**20))).endswith(f"number of at least -{largest}")


def test_parse_args_required_flag_missing_raises():
    with pytest.raises(ConfigError, match="required: --name"):
        parser_of(OptimizerSettings).parse_args([])


def test_settings_of_returns_type_and_default():
    known = settings_of(OptimizerSettings)
    assert "seed" not in known
    assert (known["dropout"].kind, known["dropout"].many, known["dropout"].default) == (float, False, None)
    assert (known["widths"].kind, known["widths"].many, known["widths"].default) == (int, True, (3,))
    assert known["name"].default is MISSING


def test_add_settings_two_dataclasses_share_a_flag():
    parser = parser_of(OptimizerSettings, Evaluation)
    arguments = parser.parse_args(["--name", "first", "--epochs", "4"])
    assert parser.build(OptimizerSettings, arguments).epochs == parser.build(Evaluation, arguments).epochs == 4
    assert Evaluation().epochs == OptimizerSettings("first").epochs


def test_add_setting_without_a_flag_is_named_like_the_field():
    parser = Parser()
    parser.add_setting(Evaluation, "batches")
    assert parser.build(Evaluation, parser.parse_args(["--batches", "2"])).batches == 2
    with pytest.raises(ConfigError, match="--batches"):
        parser.parse_args(["--batches", "0"])


def test_add_flag_value_or_default_is_in_the_arguments():
    parser = Parser()
    parser.add_flag(Setting("threads", flag="threads", kind=int, default=1, low=0))
    parser.add_flag(Setting("on a GPU", flag="gpu", kind=bool, default=False, refusal="there is none"))
    assert parser.parse_args([]).threads == 1
    for argv, message in ((["--threads", "-1"], "--threads -1"), (["--gpu"], "^--gpu: there is none$")):
        with pytest.raises(ConfigError, match=message):
            parser.parse_args(argv)


def test_help_has_meaning_and_default(capsys):
    with pytest.raises(SystemExit):
        parser_of(OptimizerSettings).parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    text = text.replace("--epochs N, --rounds N", "--epochs, --rounds N")  # before Python 3.13
    assert "--epochs, --rounds N passes over the data (default: 2)" in text
    assert "--no-shuffle keep the order (default: off)" in text
    assert "--name NAME of the run" in text


def test_parse_args_url_as_a_path_raises():
    url, parser = "https://host/levels", Parser(prog="train")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--author", type=str)
    parser.add_argument("replays", nargs="*", metavar="REPLAY")
    for argv, message in ((["--out", url], "out .*: is not on"), (["mine.replay", url], "REPLAY .*: is not on")):
        with pytest.raises(ConfigError, match=message):
            parser.parse_args(argv)
    assert parser.parse_args(["--out", "s3", "--author", url]).author == url
