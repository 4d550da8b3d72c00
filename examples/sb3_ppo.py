"""Stable-Baselines3's own PPO on N++: python examples/sb3_ppo.py [--levels FOLDER] [--steps N] [--out MODEL.zip]

``make_sb3`` steps all environments in one call, and ``ScaledFeatures`` scales the raw observations.
"""

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from rl.policy.sb3 import ScaledFeatures
from rl.ppo.vec_env import make_sb3


def main(argv: list[str] | None = None) -> float:
    """Train, save the model and return its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", help="folder of levels (default: the 30 levels shipped with nppsim)")
    parser.add_argument("--steps", type=int, default=500_000, help="decisions of all environments together")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--rollout", type=int, default=128, help="decisions per environment and update")
    parser.add_argument("--episodes", type=int, default=64, help="evaluation episodes")
    parser.add_argument("--out", default="npp_ppo.zip")
    args = parser.parse_args(argv)

    env = make_sb3(args.levels, args.num_envs)
    model = PPO(
        "MultiInputPolicy",
        env,
        n_steps=args.rollout,
        batch_size=min(512, args.rollout * args.num_envs),
        gamma=env.sim.gamma,  # reward shaping uses the same discount
        policy_kwargs={"features_extractor_class": ScaledFeatures},
        device="cpu",
        verbose=1,
    )
    model.learn(args.steps)
    model.save(args.out)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=args.episodes, deterministic=False)
    print(f"{args.out}: mean return {mean:.2f} over {args.episodes} episodes")
    return mean


if __name__ == "__main__":
    main()
