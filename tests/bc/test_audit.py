"""Imitation is worked out a second time: sound ones pass, and what is not what it is defined as is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from demonstrated import remembering

from bc.audit import AuditError
from bc.train import BCConfig, TrainingError, pretrain
from hardware.thread_pool import ThreadPool
from tests.mutation.mutation import Patch, all_mutations

pytestmark = pytest.mark.usefixtures("one_thread")


class Plain(torch.nn.Module):
    """Remembers nothing."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(26, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6))

    def logits_and_values(self, observations):
        logits = self.layers(observations["game_state"] / 30)
        return logits, logits[:, 0]


def imitate(threads=1, **settings):
    """A short imitation of some demonstrations."""
    dataset = remembering((40, 64, 90) * 4)
    config = BCConfig(**{"epochs": 5, "batch_size": 64, "learning_rate": 1e-2, "class_weight_power": 0.5} | settings)
    return pretrain(Plain(), dataset, config, pool=ThreadPool(threads), log=lambda line: None)


@pytest.mark.parametrize(
    ("threads", "settings"),
    [
        (1, {}),
        (2, {"max_grad_norm": 0.01, "weight_decay": 0.1, "class_weight_power": 0.0}),
        (1, {"batch_size": 10_000}),
    ],
)
def test_sound_imitation_passes(threads, settings):
    assert imitate(threads, **settings).epochs_run == 5


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("imitation does not shuffle decisions", "same order as those of the demonstrations"),
        (
            "the last batch of each epoch of imitation is left out",
            "epoch 1 of imitation has shown decisions 0 to 1 times",
        ),
        ("gradients of imitation are clipped at a tenth", "gradient of .* differs"),
        ("the learning rate of imitation is a tenth", "AdamW"),
    ],
)
def test_what_is_not_as_defined_is_refused(fault, told):
    inject = {one.name: one.inject for one in all_mutations()}[fault]
    with Patch() as patch:
        inject(patch)
        with pytest.raises(AuditError, match=told):
            imitate(max_grad_norm=0.1)


def test_a_run_that_goes_on_is_audited_where_it_is():
    """The learning rate is that of the steps before, too."""
    states = []
    dataset, config = remembering((40, 64, 90) * 4), BCConfig(epochs=4, batch_size=64)
    policy = Plain()

    def keep(state):
        states.append((state, {name: tensor.clone() for name, tensor in policy.state_dict().items()}))

    pretrain(policy, dataset, config, on_epoch=keep, log=lambda line: None)
    again = Plain()
    again.load_state_dict(states[2][1])
    result = pretrain(again, dataset, config, state=states[2][0], log=lambda line: None)
    assert np.isfinite(result.validation.loss)
    with pytest.raises(TrainingError, match=r"learning_rate: 0.0003 -> 0.001"):
        pretrain(again, dataset, replace(config, learning_rate=1e-3), state=states[0][0], log=lambda line: None)
