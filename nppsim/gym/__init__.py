"""Gymnasium environments, registered when nppsim is imported."""

import gymnasium

ENV_ID = "nppsim/Npp-v0"
gymnasium.register(ENV_ID, entry_point="nppsim.gym.env:NppEnv", vector_entry_point="nppsim.gym.vector_env:NppVectorEnv")
for _name in ("Easy", "Hard"):
    gymnasium.register(
        f"nppsim/Npp-{_name}-v1",
        entry_point="nppsim.gym.benchmark:make",
        vector_entry_point="nppsim.gym.benchmark:make_vec",
        kwargs={"benchmark": _name.lower()},
    )
