"""Gradients of a batch that threads share: the same as those of one thread, whatever the timing."""

import pytest
import torch

from bc.thread_pool import ThreadPool, summed_gradients
from rl.ppo.losses import LossWeights, Samples, ppo_losses

from learners import make_ppo, roll_out

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("critic_only", [False, True])
@pytest.mark.parametrize("threads", [2, 3])
def test_gradients_summed_over_parts_equal_those_of_the_batch(threads, critic_only):
    """All losses of PPO, 50 decisions, in float64: parts of 25 and 25, or of 16, 17 and 17."""
    torch.manual_seed(1)
    inputs, network = torch.randn(50, 4).double(), torch.nn.Linear(4, 7).double()
    unused = torch.nn.Parameter(torch.zeros(3))
    log_probs, cloned = torch.randn(2, 50, 6).double().log_softmax(dim=2)
    numbers = torch.randn(2, 50).double()
    samples = Samples(torch.randint(6, (50,)), log_probs, *numbers, cloned)
    settings = LossWeights(0.2, vf_coef=0.5, ent_coef=0.01, bc_kl_coef=0.3, critic_only=critic_only)

    def loss(rows):
        outputs = network(inputs[rows])
        parts = ppo_losses(outputs[:, :6], outputs[:, 6], samples.take(torch.arange(50)[rows]), settings)
        return parts.loss, torch.stack([*parts])

    whole, all_means = loss(slice(0, 50))
    expected = torch.autograd.grad(whole, list(network.parameters()))
    means, (*found, of_unused) = summed_gradients(ThreadPool(threads), 50, loss, [*network.parameters(), unused])
    torch.testing.assert_close(found, list(expected), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(means, all_means.detach(), rtol=1e-6, atol=1e-7)  # clipped ones are counted in float32
    assert of_unused is None and all(gradient.is_contiguous() for gradient in found)


def test_two_threads_are_repeatable_and_equal_one_thread_up_to_rounding():
    def trained(threads):
        ppo, _ = make_ppo(n_epochs=2)
        ppo.pool = ThreadPool(threads)
        roll_out(ppo)
        ppo.update()
        roll_out(ppo)
        return ppo.rollout_buffer, torch.cat([parameter.flatten() for parameter in ppo.policy.parameters()])

    (one, alone), (two, shared), (again, repeated) = trained(1), trained(2), trained(2)
    assert torch.equal(shared, repeated) and torch.equal(two.log_probs, again.log_probs)
    torch.testing.assert_close(shared, alone, rtol=1e-3, atol=1e-4)
    assert torch.equal(one.actions, two.actions)
