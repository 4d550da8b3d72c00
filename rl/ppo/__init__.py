"""PPO on the batch simulator."""
