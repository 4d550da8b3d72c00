"""List the lines of tracked files with words of the private dialect: ``python tests/support/words.py [PATH ...]``.

Prints ``file:line: text`` for each line and the number of lines.  A help for editors; no test runs it.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Word (a regular expression, whole words, case ignored) -> what to write instead.
INSTEAD = {
    r"tells|told": "report, print, log, distinguish",
    r"kept": "saved, stored, unchanged",
    r"held(?![- ]out)": "stored, fixed (not of keys)",
    r"given back|taken back": "returned, undone",
    r"anew|once more": "again",
    r"at once": "immediately, together",
    r"as it is|as they are": "unchanged",
    r"likeliest": "deterministic (greedy), most probable",
    r"lessons?|pupils?": "distillation, student",
    r"the clone|a clone|clones": "the BC policy",
    r"in force|played under": "active, current",
    r"judged?|judges|judging": "evaluate",
    r"nobody|somebody|anybody|everybody|nobody's|somebody's": "name the subject",
    r"wishes|wished": "request",
    r"wholeness": "integrity",
    r"planted|plants": "fault injection",
    r"untold|unlisted": "name the thing",
}
WORDS = re.compile(rf"(?<![\w-])(?:{'|'.join(INSTEAD)})(?![\w-])", re.IGNORECASE)
KEYS_HELD = re.compile(
    r"(?:key|keys|jump|button|actions?) (?:is |are |was |were |be )?held|held (?:down|keys?)|\.held|jump_held",
    re.IGNORECASE,
)
DOCSTRING = re.compile(r'^\s*r?"""(?:What|Whether|That)\b')
LEFT_ALONE = ("datasets/", "tests/support/words.py", "CHANGELOG.md", "docs/images/", "LICENSE")
ENDINGS = (
    ".py",
    ".md",
    ".toml",
    ".sh",
    ".js",
    ".html",
    ".css",
    ".txt",
    ".yml",
    ".cff",
    ".ts",
    "Makefile",
    "Dockerfile",
)


def offending(path: Path):
    """(number, line) of each line of a file that uses one of the words."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if WORDS.search(KEYS_HELD.sub("", line)) or (path.suffix == ".py" and DOCSTRING.match(line)):
            yield number, line.strip()


def main():
    """Print the lines below the paths given, or of the whole project."""
    names = subprocess.run(
        ["git", "ls-files", "--", *sys.argv[1:]], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    total = 0
    for name in names:
        if name.endswith(ENDINGS) and not name.startswith(LEFT_ALONE):
            for number, line in offending(ROOT / name):
                print(f"{name}:{number}: {line}")
                total += 1
    print(f"{total} lines")


if __name__ == "__main__":
    main()
