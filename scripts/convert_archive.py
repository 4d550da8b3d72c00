"""Convert an archive of Stable-Baselines3 (a zip file of ``PPO.save``) to a checkpoint of this project.

python scripts/convert_archive.py ARCHIVE --out agent.safetensors --trust-pickle [--frame-skip 4]

Opening an archive executes the pickled objects in it: open only archives that you trust.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from nppsim import errors
from nppsim.actions import FRAME_SKIP, FRAMES_PER_SECOND
from nppsim.io.files import check_output_file
from nppsim.settings import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for success, 2 for an archive that cannot be converted, 130 after Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> None:
        parser = Parser(
            prog="convert_archive.py", description="Convert an archive of Stable-Baselines3 to a checkpoint."
        )
        parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="zip written by Stable-Baselines3's PPO.save")
        parser.add_argument(
            "--out", type=Path, required=True, metavar="FILE", help="checkpoint to write, *.safetensors"
        )
        parser.add_argument(
            "--trust-pickle", action="store_true", help="allow the archive's pickled objects to execute; required"
        )
        parser.add_argument(
            "--frame-skip",
            type=int,
            default=FRAME_SKIP,
            choices=range(1, FRAMES_PER_SECOND + 1),
            metavar="N",
            help=f"frames per decision with which the policy was trained; default: {FRAME_SKIP}",
        )
        arguments = parser.parse_args(given)
        check_output_file(arguments.out, "--out", ".safetensors")
        errors.import_optional("torch", "train")
        from rl.policy.sb3 import convert

        written = convert(
            arguments.archive, arguments.out, frame_skip=arguments.frame_skip, trust_pickle=arguments.trust_pickle
        )
        print(f"wrote {written}")

    return errors.run(job)


if __name__ == "__main__":
    sys.exit(main())
