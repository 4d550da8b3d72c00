"""``random.js`` draws the numbers of numpy, in Node.js."""

import json
import subprocess

import numpy as np
import pytest

from nppsim.wasm.build import FOLDER

from wasm_calls import NODE, needs_node

ROUNDS = 300
SCRIPT = f"""
    import {{ Random }} from "{(FOLDER / "random.js").as_posix()}";
    const rng = new Random(Number(process.argv[1]));
    const drawn = [];
    for (let i = 1; i <= {ROUNDS}; i++)
      drawn.push([rng.integers(i), rng.random(), rng.integers(2 ** 32 - i), ...rng.fill(new Float64Array(2)),
                  rng.choice([0, 2.5, 8]), ...rng.distinct(i, Math.min(i, 4)), rng.geometric(0.5), rng.geometric(0.4)]);
    console.log(JSON.stringify(drawn));
"""


@needs_node
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**53 - 1])
def test_random_seed_draws_the_numbers_of_numpy(seed):
    command = [NODE, "--input-type=module", "-e", SCRIPT, str(seed)]
    drawn = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rng = np.random.default_rng(seed)
    for i in range(1, ROUNDS + 1):
        assert drawn[i - 1] == [
            rng.integers(i), rng.random(), rng.integers(2**32 - i), *rng.random(2),
            rng.choice([0, 2.5, 8]), *rng.choice(i, min(i, 4), replace=False), rng.geometric(0.5), rng.geometric(0.4),
        ]  # fmt: skip
