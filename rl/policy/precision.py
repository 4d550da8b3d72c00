"""The number format that a network computes in."""

import torch


def compute_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 inside an autocast region of that device, else float32."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32
