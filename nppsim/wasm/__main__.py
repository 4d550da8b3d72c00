"""Build the WebAssembly modules of this folder, or compare them with the kernels.

python -m nppsim.wasm            build all modules (needs wasm-ld of LLVM's linker lld)
python -m nppsim.wasm --check    exit with status 1 if a build gives other bytes
"""

import argparse
import sys
import tempfile
from pathlib import Path

from nppsim import errors
from nppsim.wasm.build import FOLDER, build


def main() -> int:
    """Build into the package, or into a temporary folder for a comparison."""
    parser = argparse.ArgumentParser(prog="python -m nppsim.wasm", description="Build the kernels as WebAssembly.")
    parser.add_argument(
        "--check", action="store_true", help="compare a build with the binaries instead of writing them"
    )
    if not parser.parse_args().check:
        for path in build(FOLDER):
            print(f"{path.name}: {path.stat().st_size:,} bytes")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        differ = [path.name for path in build(Path(folder)) if path.read_bytes() != (FOLDER / path.name).read_bytes()]
    if differ:
        print(f"{', '.join(differ)}: a build gives other bytes; run: make wasm", file=sys.stderr)
    return len(differ) > 0


if __name__ == "__main__":
    sys.exit(errors.run(main))
