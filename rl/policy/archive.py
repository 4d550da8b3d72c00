"""Archives of Stable-Baselines3 (``final_model.zip``) as checkpoints: the only pickles that are ever opened.

Such a zip holds classes and functions as pickles of cloudpickle, so that opening one can run anything.
"""

import pickle
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

from stable_baselines3 import PPO

from nppsim.errors import ConfigError
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.policy.policy import NppPolicy

# what PPO.load raises for files that are no archives of PPO, or of other versions
_UNREADABLE = (
    *(AssertionError, AttributeError, EOFError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError),
    *(pickle.UnpicklingError, struct.error, zipfile.BadZipFile, zlib.error),
)


def convert(archive: Path, out: Path, *, frame_skip: int, trust_pickle: bool) -> Path:
    """Write the policy of a PPO archive as a checkpoint.

    frame_skip: frames per decision that it was trained with; archives do not say.
    trust_pickle: what the archive holds may be run.
    ConfigError without that; CheckpointError if it is no archive, or its policy is none of this project.
    """
    if not trust_pickle:
        raise ConfigError(
            "holds pickles, which can run any code when they are opened: if you trust whoever made it, add --trust-pickle",
            "ARCHIVE",
            archive,
        )
    if not archive.is_file():
        raise CheckpointError(f"{archive}: no such archive: check the path")
    if not zipfile.is_zipfile(archive):
        raise CheckpointError(f"{archive}: not a zip, so no archive of Stable-Baselines3: give another file")
    warnings.warn(f"opening {archive} runs what is pickled in it", stacklevel=2)
    try:
        policy = PPO.load(archive, device="cpu").policy
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"{archive}: Stable-Baselines3 cannot read it ({type(error).__name__}: {reason}): use the versions that wrote it"
        ) from error
    if not isinstance(policy, NppPolicy):
        raise CheckpointError(
            f"{archive}: its policy is a {type(policy).__name__}, none of this project's: train again"
        )
    return checkpoint.save(out, policy, frame_skip=frame_skip)
