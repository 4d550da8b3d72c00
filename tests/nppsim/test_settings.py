"""Settings: one field has default, flag, help and limits; parsers and messages follow from it."""

from dataclasses import MISSING, dataclass
from pathlib import Path

import pytest

from nppsim.errors import ConfigError
from nppsim.settings import Parser, Setting, check_settings, same_setting, setting, settings_of


@dataclass(frozen=True)
class Brewing:
    """Settings of every kind."""

    name: str = setting(MISSING, "of the tea", flag="name")
    cups: int = setting(2, "how many", flag="cups", aliases=("mugs",), low=1, high=9)
    strength: float | None = setting(None, "how strong", flag="strength", above=0, below=1)
    minutes: tuple[int, ...] = setting((3,), "of each infusion", flag="minutes", low=0)
    milk: bool = setting(False, "add milk", flag="milk")
    sugar: bool = setting(True, "leave the sugar out", flag="no-sugar")
    lid: bool = setting(True, "close the pot", flag="lid", switch=True)
    pot: Path = setting(Path("pot"), "where", flag="pot")
    leaves: str = setting("green", "which", flag="leaves", choices=("green", "black"))
    stirring: float = setting(0.5, "without a flag", low=0)
    plain: int = 0

    def __post_init__(self):
        check_settings(self)
        if self.milk and self.leaves == "green":
            raise ConfigError("green tea takes none", "milk")


@dataclass(frozen=True)
class Serving:
    cups: int = same_setting(Brewing, "cups")
    trays: int = setting(1, "trays", low=1)

    def __post_init__(self):
        check_settings(self)


def parser_of(*owners):
    parser = Parser(prog="tea")
    for owner in owners:
        parser.add_settings(owner)
    return parser


def brew(*argv):
    parser = parser_of(Brewing)
    return parser.build(Brewing, parser.parse_args(["--name", "assam", *argv]))


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        ([], "cups", 2),
        (["--cups", "3"], "cups", 3),
        (["--mugs", "3"], "cups", 3),
        (["--strength", "0.25"], "strength", 0.25),
        (["--strength", "2.5e-1"], "strength", 0.25),
        (["--minutes", "1", "2"], "minutes", (1, 2)),
        (["--milk", "--leaves", "black"], "milk", True),
        (["--no-sugar"], "sugar", False),
        (["--no-lid"], "lid", False),
        (["--lid"], "lid", True),
        (["--pot", "a/b"], "pot", Path("a/b")),
    ],
)
def test_parser_flag_sets_field(argv, field, value):
    assert getattr(brew(*argv), field) == value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--cups", "0"], "--cups 0: give a whole number from 1 to 9"),
        (["--mugs", "10"], "--cups 10: give a whole number from 1 to 9"),
        (["--cups", "two"], "argument --cups/--mugs: 'two' is not a whole number"),
        (["--strength", "1"], "--strength 1.0: give a number above 0 and below 1"),
        (["--strength", "nan"], "--strength nan: give a number above 0 and below 1"),
        (
            ["--minutes", "1", "1e20"],
            "--minutes 1 100000000000000000000: .* of at least 0 and at most 1,000,000,000,000$",
        ),
        (["--strength", "-1e-4"], "--strength -0.0001: give a number above 0"),
        (["--strength", "-.5E-3"], "--strength -0.0005: give a number above 0"),
        (["--minutes", "1", "-2"], "--minutes 1 -2: give whole numbers of at least 0"),
        (["--leaves", "blue"], r"argument --leaves: invalid choice: 'blue' \(choose from 'green', 'black'\)"),
        (["--milk"], "--milk: green tea takes none"),
        (["--cup", "3"], "unknown flag --cup; did you mean '--cups'?"),
        (["--password=hunter2"], r"unknown flag --password; --help lists all flags$"),
        (["--cups", "3", "4"], "unexpected argument '4'"),
    ],
)
def test_parser_invalid_value_error_names_flag(argv, message):
    with pytest.raises(ConfigError, match=message):
        brew(*argv)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cups": 2.5}, "cups 2.5: give a whole number from 1 to 9"),
        ({"cups": True}, "cups True: give a whole number"),
        ({"strength": "weak"}, "strength weak: give a number above 0"),
        ({"stirring": -1.0}, "stirring -1.0: give a number of at least 0"),
        ({"stirring": float("inf")}, "stirring inf: give a number"),
        ({"stirring": 1e10}, "stirring 10000000000.0: give a number of at least 0 and at most 1,000,000,000.0"),
        ({"stirring": 10**400}, "stirring 10+: give a number of at least 0 and at most"),
    ],
)
def test_check_settings_error_names_field(values, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Brewing("assam", **values)


@pytest.mark.parametrize(("kind", "largest"), [(int, "1,000,000,000,000"), (float, "1,000,000,000.0")])
def test_unlimited_numbers_have_largest_size(kind, largest):
    warmth = Setting("how warm", kind=kind)
    assert warmth.problem(kind(10**20)).endswith(f"number at most {largest}")
    assert warmth.problem(kind(-(10**20))).endswith(f"number of at least -{largest}")


def test_parser_missing_required_flag_raises_error():
    with pytest.raises(ConfigError, match="required: --name"):
        parser_of(Brewing).parse_args([])


def test_settings_of_knows_field():
    known = settings_of(Brewing)
    assert "plain" not in known
    assert (known["strength"].kind, known["strength"].many, known["strength"].default) == (float, False, None)
    assert (known["minutes"].kind, known["minutes"].many, known["minutes"].default) == (int, True, (3,))
    assert known["name"].default is MISSING


def test_parser_two_dataclasses_share_flag():
    parser = parser_of(Brewing, Serving)
    arguments = parser.parse_args(["--name", "assam", "--cups", "4"])
    assert parser.build(Brewing, arguments).cups == parser.build(Serving, arguments).cups == 4
    assert Serving().cups == Brewing("assam").cups


def test_add_setting_without_flag_creates_one():
    parser = Parser()
    parser.add_setting(Serving, "trays")
    assert parser.build(Serving, parser.parse_args(["--trays", "2"])).trays == 2
    with pytest.raises(ConfigError, match="--trays"):
        parser.parse_args(["--trays", "0"])


def test_add_flag_default_in_arguments():
    parser = Parser()
    parser.add_flag(Setting("spoons", flag="spoons", kind=int, default=1, low=0))
    parser.add_flag(Setting("of silver", flag="silver", kind=bool, default=False, refusal="there is none"))
    assert parser.parse_args([]).spoons == 1
    with pytest.raises(ConfigError, match="--spoons"):
        parser.parse_args(["--spoons", "-1"])
    with pytest.raises(ConfigError, match="^--silver: there is none$"):
        parser.parse_args(["--silver"])


def test_help_shows_meaning_and_default(capsys):
    with pytest.raises(SystemExit):
        parser_of(Brewing).parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split()).replace(
        "--cups N, --mugs N", "--cups, --mugs N"
    )  # before Python 3.13
    assert "--cups, --mugs N how many (default: 2)" in text
    assert "--no-sugar leave the sugar out (default: off)" in text
    assert "--name NAME of the tea" in text


@pytest.mark.parametrize("url", ["s3://bucket/runs", "gs://bucket", "https://host/levels"])
def test_parser_url_as_path_raises_error(url):
    with pytest.raises(ConfigError, match="--pot .*: is not on this machine; give a local path"):
        brew("--pot", url)
    parser = Parser(prog="tea")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--author", type=str)
    with pytest.raises(ConfigError, match="out .*: is not on this machine"):
        parser.parse_args(["--out", url])
    parser.add_argument("replays", nargs="*", metavar="REPLAY")
    with pytest.raises(ConfigError, match="REPLAY .*: is not on this machine"):
        parser.parse_args(["mine.replay", url])
    assert parser.parse_args(["--out", "s3", "--author", url]).author == url
    assert brew("--pot", "tr:out/s3:").pot == Path("tr:out/s3:")
