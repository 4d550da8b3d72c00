"""Average the weights of several agents.

python scripts/average_agents.py CHECKPOINT CHECKPOINT... --out AGENT.safetensors [--architecture NAME+mirror]

All agents must have the same network and normaliser, e.g. because they were trained from one agent with --init-from.
"""

import sys
from collections.abc import Sequence

from nppsim import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 2 for bad input, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        errors.import_optional("torch", "train")
        from rl.tools.average import parse, run

        run(parse(given))

    return errors.run(job, debug="--debug" in given)


if __name__ == "__main__":
    sys.exit(main())
