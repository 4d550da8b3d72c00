"""Load a trained agent, play a level with it, write a video: python examples/load_and_film.py [CHECKPOINT] [LEVEL] [OUT]"""

import sys
from pathlib import Path

from nppsim import Level, NppEnv
from nppsim.gym.env import STARTER_LEVELS
from nppsim.pictures.film import record
from nppsim.pictures.render import FilmSettings
from rl.policy.checkpoint import load_policy

SHIPPED = Path(__file__).parents[1] / "datasets" / "agents" / "vision_free_foresight.safetensors"


def main(
    checkpoint: str = str(SHIPPED), level: str = str(STARTER_LEVELS / "simple" / "000000.map"), out: str = "agent.mp4"
) -> str:
    """Play and film one episode; return its outcome."""
    policy, fields = load_policy(checkpoint)
    settings = {"observations": policy.observations, "stacking": policy.stacking, "foresight": policy.foresight}
    env = NppEnv([Level.load(level)], frame_skip=fields["frame_skip"], **settings)
    observation, _ = env.reset(seed=0)
    over = False
    while not over:
        action, _ = policy.predict(observation, deterministic=True)
        observation, _, terminated, truncated, info = env.step(int(action))
        over = terminated or truncated
    record(out, env.bank.levels[0], env.inputs, FilmSettings(title=Path(level).name, outcome=info["outcome"]))
    print(f"{out}: {info['outcome']} after {info['frames']} frames")
    return info["outcome"]


if __name__ == "__main__":
    main(*sys.argv[1:])
