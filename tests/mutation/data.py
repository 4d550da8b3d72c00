"""Mutations of demonstrations, datasets, levels and normalisation statistics."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bc import dataset as demonstrations
from bc.batches import Batches
from bc.dataset import BCDataset, content_key, record, split_by_level
from bc.demonstrations import Demonstration, _Converter
from nppsim.observe.statistics import ObservationStatistics
from nppsim.simulate import Run
from tests.mutation.mutation import Patch, mutation


def _labels(patch: Patch, change: Callable[[BCDataset], np.ndarray]) -> None:
    """Change the actions of a dataset when it is read."""

    def changed(original, *arguments, **named):
        dataset = original(*arguments, **named)
        object.__setattr__(dataset, "actions", change(dataset).astype(np.int8))
        return dataset

    patch.everywhere(demonstrations.load_or_build, changed)


@mutation("labels are those of the previous decision", "tests/bc/test_dataset.py")
def _(patch: Patch) -> None:
    _labels(patch, lambda dataset: dataset.previous_actions.copy())


@mutation("left and right change places in the labels", "tests/bc/test_dataset.py")
def _(patch: Patch) -> None:
    _labels(patch, lambda dataset: np.array([0, 2, 1, 3, 5, 4])[dataset.actions])


@mutation("observations are recorded after the step that the action drives", "tests/bc/test_dataset.py").everywhere(
    record
)
def _(original, bank, levels, wave, config):
    recorded = original(bank, levels, wave, config)
    return {name: np.roll(values, -1, axis=0) for name, values in recorded.items()}


@mutation("mirrored demonstrations keep their actions", "tests/bc/test_demonstrations.py").wrap(_Converter, "mirrored")
def _(original, converter, unchanged):
    result = original(converter, unchanged)
    return replace(result, actions=unchanged.actions) if isinstance(result, Demonstration) else result


mutation("a demonstration that does not win is used", "tests/bc/test_demonstrations.py").set(Run, "won", True)


@mutation("the cache key leaves out the settings", "tests/bc/test_dataset.py")
def _(patch: Patch) -> None:
    """A dataset of another frame skip is found under the same name."""
    patch.everywhere(content_key, lambda original, files, config, held_back=(): "0123456789abcdef")
    original_open = BCDataset.open.__func__  # type: ignore[attr-defined]

    def changed(cls, path, *arguments, **named):
        dataset = original_open(cls, path, *arguments, **named)
        object.__setattr__(dataset, "frame_skip", 2)
        return dataset

    patch.set(BCDataset, "open", classmethod(changed))


@mutation("a level and its mirror image on the two sides of the split", "tests/bc/test_dataset.py").everywhere(
    split_by_level
)
def _(original, found, share, seed):
    return np.random.default_rng(seed).random(len(found)) < 0.5


@mutation("normalisation statistics are of other data", "tests/bc/test_bc.py").wrap(BCDataset, "statistics")
def _(original, dataset, batch=4096):
    statistics = original(dataset, batch)
    for key in statistics.float_keys:
        statistics._squares[key] *= 100
        statistics._mean[key] += 50
    return statistics


@mutation("components that vary little are divided by 1", "tests/nppsim/observe/test_statistics.py")
def _(patch: Patch) -> None:
    original = ObservationStatistics.std.fget  # type: ignore[attr-defined]
    patch.set(
        ObservationStatistics,
        "divisor",
        property(lambda s: {key: np.where(std < 0.5, 1.0, std) for key, std in original(s).items()}),
    )


@mutation("observations of a batch are in file order, its labels are not", "tests/bc/test_bc.py").wrap(
    Batches, "observe"
)
def _(original, batches, rows):
    return original(batches, np.sort(rows))[0], original(batches, rows)[1]
