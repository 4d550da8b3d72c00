"""docs/lab: tests that the table of failures names exist, and every failure has its row."""

import re

from places import ROOT

FAILURES = (ROOT / "docs" / "lab" / "failures.md").read_text(encoding="utf-8")
NUM_FAILURES = 161


def test_tests_of_failures_exist():
    files = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("test_*.py")]
    defined = {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)}
    missing = sorted(set(re.findall(r"`(test_\w+)`", FAILURES)) - defined)
    assert not missing, f"docs/lab/failures.md names {', '.join(missing)}: a renamed test needs its new name there"


def test_all_failures_have_rows():
    assert re.findall(r"^\| F(\d+) \|", FAILURES, re.MULTILINE) == [str(i) for i in range(1, NUM_FAILURES + 1)]
