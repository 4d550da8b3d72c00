"""Plain Stable-Baselines3 learns N++: python examples/sb3_ppo.py [--levels FOLDER] [--steps N] [--out MODEL.zip]

Default observations, SB3's own PPO, and a features extractor that brings them to one scale.
"""

import argparse

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from rl.policy.sb3 import ScaledFeatures


def main(argv: list[str] | None = None) -> float:
    """Returns the mean return of the trained agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", help="folder of levels; default: 30 that come with nppsim")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rollout", type=int, default=512, help="decisions between two updates")
    parser.add_argument("--episodes", type=int, default=20, help="of the evaluation")
    parser.add_argument("--out", default="npp_ppo.zip")
    args = parser.parse_args(argv)

    env = gymnasium.make("nppsim/Npp-v0", levels=args.levels)
    model = PPO(
        "MultiInputPolicy",
        env,
        n_steps=args.rollout,
        gamma=env.unwrapped.simulator.gamma,  # the shaping of the rewards uses it, too
        policy_kwargs={"features_extractor_class": ScaledFeatures},
        device="cpu",
    )
    model.learn(args.steps)
    model.save(args.out)
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=args.episodes, deterministic=False)
    print(f"{args.out}: mean return {mean:.2f} over {args.episodes} episodes")
    return mean


if __name__ == "__main__":
    main()
