"""Graph networks: the encoding of a graph depends on this graph only, and gradients are correct."""

import numpy as np
import pytest
import torch

from nppsim.bank import LevelBank
from nppsim.observe.graph import NONE, NUM_SLOTS, Graph, graph_of, register_bank, state_at_start
from rl.policy.architectures import ARCHITECTURES, GraphNetwork
from rl.policy.graph_kernels import dot_product_attention
from rl.policy.graph_network import AttentionLayer, GraphBatch, GraphLayers, MeanLayer, TransformerLayer
from rl.policy.policy import build_policy
from rl.ppo.rollout_buffer import grouped_order

from learners import LEVELS
from networks import observed, simulator_for
from worlds import mixed_level, random_level

GRAPH_ARCHITECTURES = sorted(name for name, chosen in ARCHITECTURES.items() if chosen.graph)
KINDS = ("gcn", "gat", "hgt", "simplified_hgt")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def seeded(one_thread):
    torch.manual_seed(3)


@pytest.fixture(scope="module")
def bank():
    bank = LevelBank([*LEVELS, *(random_level(seed) for seed in range(3)), mixed_level(1)])
    register_bank(bank)
    return bank


@pytest.fixture(scope="module")
def graphs(bank):
    return [graph_of(state_at_start(bank, level)) for level in range(len(bank))]


def layers(kind):
    return GraphLayers(GraphNetwork(kind, layers=2, width=16, heads=4, out=8))


def permuted(graph, rng):
    """The same graph with its nodes in another order, and the place of each old node."""
    order = rng.permutation(len(graph))
    place = np.argsort(order).astype(np.int32)
    neighbours = graph.neighbours[order]
    neighbours = np.where(neighbours == NONE, NONE, place[neighbours])
    return Graph(graph.features[order], graph.types[order], neighbours, place[graph.cell_node]), place


@pytest.mark.parametrize("kind", KINDS)
def test_graph_encoding_independent_of_other_graphs(kind, graphs):
    network = layers(kind)
    together = network(GraphBatch.join(graphs, CPU))
    alone = torch.cat([network(GraphBatch.join([graph], CPU)) for graph in graphs])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert together.std(dim=0).median() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_graph_encoding_independent_of_node_order(kind, graphs):
    network, graph = layers(kind), graphs[-1]
    other, place = permuted(graph, np.random.default_rng(0))
    first, second = (GraphBatch.join([some], CPU) for some in (graph, other))
    torch.testing.assert_close(network(second)[place], network(first), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(second.mean(network(second)), first.mean(network(first)), atol=1e-5, rtol=1e-5)


def test_values_of_neighbours_and_their_gradients_equal_plain_indexing(graphs):
    batch = GraphBatch.join(graphs[-2:], CPU)
    start = torch.randn(len(batch.features), 3)
    mask = batch.valid[:, :, None]
    weights = torch.randn(*batch.valid.shape, 3)
    for ours, plain in (
        (lambda x: (batch.gather(x) * mask * weights).sum(1), lambda x: (x[batch.neighbours] * mask * weights).sum(1)),
        (batch.neighbour_mean, lambda x: (x[batch.neighbours] * mask).sum(1) / mask.sum(1)),
    ):
        results = []
        for function in (ours, plain):
            nodes = start.clone().requires_grad_()
            values = function(nodes)
            (values * torch.arange(values.numel()).view_as(values).cos()).sum().backward()
            results.append((values, nodes.grad))
        torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-5)


def neighbours_of(batch, node):
    return [(k, int(batch.neighbours[node, k])) for k in torch.nonzero(batch.valid[node]).flatten().tolist()]


def test_layers_equal_definitions_per_node(graphs):
    """Loops over nodes, heads and neighbours, by the papers' formulas."""
    batch, network = GraphBatch.join(graphs[-1:], CPU), GraphNetwork("", 1, 8, 2, 4)
    nodes, some = torch.randn(len(batch.features), 8), [0, 40, len(batch.features) - 1, len(batch.features) - 20]
    types = torch.from_numpy(graphs[-1].types).long()

    mean = MeanLayer(8, network)
    for node in some:
        average = torch.stack([nodes[j] for _, j in neighbours_of(batch, node)]).mean(0)
        torch.testing.assert_close(mean(nodes, batch)[node], mean.linear(average).relu(), atol=1e-5, rtol=1e-5)

    attention = AttentionLayer(8, network)
    torch.nn.init.normal_(attention.slot)
    as_source, as_target = attention.scores(nodes).chunk(2, dim=1)
    for node in some:
        expected = []
        for head in range(2):
            scores = [
                as_source[j, head] + as_target[node, head] + attention.slot[k, head]
                for k, j in neighbours_of(batch, node)
            ]
            weights = torch.nn.functional.leaky_relu(torch.stack(scores), 0.2).softmax(0)
            values = [attention.value(nodes[j])[4 * head : 4 * head + 4] for _, j in neighbours_of(batch, node)]
            expected.append((weights[:, None] * torch.stack(values)).sum(0))
        torch.testing.assert_close(attention(nodes, batch)[node], torch.cat(expected).relu(), atol=1e-5, rtol=1e-5)

    relation = [0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6, 7, 7, 7, 7]
    for simple in (False, True):
        transformer = TransformerLayer(network, simple)
        torch.nn.init.normal_(transformer.prior)

        def typed(layer, node, values):
            return layer.weight[types[node]] @ values + layer.bias[types[node]]

        def parts(node, layer=transformer):
            return typed(layer.inputs, node, nodes[node]).chunk(3)

        for node in some:
            expected = []
            for head in range(2):
                own = slice(4 * head, 4 * head + 4)
                scores, values = [], []
                for k, j in neighbours_of(batch, node):
                    query, key, value = parts(node)[0][own], parts(j)[1][own], parts(j)[2][own]
                    if not simple:
                        query = query @ transformer.attention[head, :, relation[k]]
                        value = value @ transformer.message[head, relation[k]]
                    scores.append(query @ key / 2 + transformer.prior[relation[k], head])
                    values.append(value)
                expected.append((torch.stack(scores).softmax(0)[:, None] * torch.stack(values)).sum(0))
            out = nodes[node] + typed(transformer.output, node, torch.nn.functional.gelu(torch.cat(expected)))
            torch.testing.assert_close(transformer(nodes, batch)[node], out, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("heads", "size", "simple"), [(2, 8, False), (4, 8, True), (2, 4, False)])
def test_attention_kernels_and_gradients_equal_plain_indexing(heads, size, simple, graphs):
    batch = GraphBatch.join(graphs[-2:], CPU)
    relation = torch.arange(NUM_SLOTS) % (1 if simple else 8)
    nodes, relations, width = len(batch.features), int(relation.max()) + 1, heads * size
    shapes = (nodes, relations, width), (nodes, width), (nodes, width), (NUM_SLOTS, heads)

    def by_indexing(asked, keys, values, prior):
        products = (asked[:, relation] * keys[batch.neighbours]).unflatten(2, (heads, size)).sum(3)
        scores = (products / size**0.5 + prior).masked_fill(~batch.valid[:, :, None], -torch.inf)
        wide = scores.softmax(dim=1).repeat_interleave(size, dim=2)
        return torch.zeros(shapes[0]).index_add(1, relation, wide * values[batch.neighbours])

    start, results = [torch.randn(shape) for shape in shapes], []
    for function in (lambda *args: dot_product_attention(*args, batch.neighbours, batch.valid, relation), by_indexing):
        given = [one.clone().requires_grad_() for one in start]
        out = function(*given)
        (out * torch.arange(out.numel()).view_as(out).cos()).sum().backward()
        results.append((out, *(one.grad for one in given)))
    torch.testing.assert_close(results[0], results[1], atol=1e-4, rtol=1e-4)


def policy_and_obs(name, bank):
    obs, statistics = observed(simulator_for(name, bank, len(bank)))
    return build_policy(name, statistics), obs


@pytest.mark.parametrize("name", GRAPH_ARCHITECTURES)
def test_outputs_independent_of_minibatch(name, bank):
    policy, obs = policy_and_obs(name, bank)
    tensors = policy.to_tensors(obs)
    together = policy.logits_and_values(tensors)[0]
    order = torch.randperm(len(together))[:40]
    shuffled = policy.logits_and_values({key: values[order] for key, values in tensors.items()})[0]
    torch.testing.assert_close(shuffled, together[order], atol=1e-5, rtol=1e-4)
    alone = policy.logits_and_values({key: values[5:6] for key, values in tensors.items()})[0]
    torch.testing.assert_close(alone, together[5:6], atol=1e-5, rtol=1e-4)


def test_cached_graphs_equal_computed_ones_and_are_cleared_with_the_weights(bank):
    policy, obs = policy_and_obs("vision_free_gat", bank)
    tensors, encoder = policy.to_tensors(obs), policy.features_extractor.graph
    calls = []
    encoder.layers.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        fresh = policy.logits_and_values(tensors)[0]
        for rows in (slice(0, 3), slice(None)):
            policy.cache_graphs({key: values[rows] for key, values in tensors.items()})
        assert len(calls) == 3
        torch.testing.assert_close(policy.logits_and_values(tensors)[0], fresh, atol=1e-5, rtol=1e-4)
        assert len(calls) == 3, "looked up"
    policy.logits_and_values(tensors)[0].square().sum().backward()
    assert len(calls) == 4, "gradients go through the layers"
    policy.optimizer.step()
    with torch.no_grad():
        changed = policy.logits_and_values(tensors)[0]
        assert len(calls) == 5
        assert (changed - fresh).abs().max() > 1e-4
        policy.cache_graphs(tensors)
        torch.testing.assert_close(policy.logits_and_values(tensors)[0], changed, atol=1e-5, rtol=1e-4)
        policy.precision = "bf16"
        policy.logits_and_values(tensors)
        assert len(calls) == 7, "encoded again in another precision"
        policy.clear_graph_cache()
    assert encoder._cache is None


def test_minibatches_of_graphs_have_every_decision_once_and_few_environments():
    rng = np.random.default_rng(0)
    order = grouped_order(8, 32, 32, rng)
    assert sorted(order) == list(range(256))
    assert {len(np.unique(batch % 32)) for batch in order.reshape(-1, 32)} <= {6, 7, 8}
    assert (grouped_order(8, 32, 32, np.random.default_rng(1)) != order).any()
    assert sorted(grouped_order(7, 5, 10, rng)) == list(range(35)), "sizes that do not divide"


def test_policy_learns_from_graph_alone(bank):
    """Overfit check: only the graph shows whether a level has many mines."""
    policy, obs = policy_and_obs("vision_free_gcn", bank)
    tensors = {key: values[:1].expand(len(bank), *values.shape[1:]) for key, values in policy.to_tensors(obs).items()}
    tensors["graph_state"] = torch.from_numpy(np.stack([state_at_start(bank, k) for k in range(len(bank))]))
    wanted = torch.tensor([0, 1, 0, 1, 2, 2, 1])
    policy.optimizer.param_groups[0]["lr"] = 3e-3
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(policy.logits_and_values(tensors)[0], wanted)
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()
    assert (policy.logits_and_values(tensors)[0].argmax(1) == wanted).all()
