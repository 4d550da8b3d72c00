"""``TorchRandom`` of ``nppsim/wasm/random.js`` draws the numbers of torch, in Node.js."""

import json
import subprocess

import numpy as np
import pytest
import torch

from nppsim.wasm.build import FOLDER

from wasm_calls import NODE, needs_node

ROUNDS = 1000
SCRIPT = f"""
    import {{ TorchRandom }} from "{(FOLDER / "random.js").as_posix()}";
    const rng = new TorchRandom(Number(process.argv[1]));
    const drawn = [];
    for (let i = 1; i <= {ROUNDS}; i++)
      drawn.push([rng.random(), rng.integers(i), ...Array.from({{ length: 6 }}, () => rng.exponential())]);
    console.log(JSON.stringify(drawn));
"""


@needs_node
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32 + 3])
def test_torch_random_seed_draws_the_numbers_of_torch(seed):
    command = [NODE, "--input-type=module", "-e", SCRIPT, str(seed)]
    drawn = np.array(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    rng = torch.Generator().manual_seed(seed)
    for i in range(1, ROUNDS + 1):
        assert drawn[i - 1, :2].tolist() == [torch.rand(1, generator=rng).item(), torch.randint(i, (1,), generator=rng)]
        race = torch.empty(1, 6).exponential_(generator=rng)
        # one unit in the last place: logarithms of two libraries, rounded to float32
        np.testing.assert_array_max_ulp(drawn[i - 1, 2:].astype(np.float32), race.numpy()[0], maxulp=1)
