"""Paths for tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
EXCERPT = DATA / "conformance_excerpt.h5"  # recorded traces
SHARED = ROOT.parent / "shared"  # beside a developer's checkout; tests that need it skip where it is not
ODD = 'tr:out? %41 # & = é "'  # name of a folder that URLs, shells and path formats could misread
