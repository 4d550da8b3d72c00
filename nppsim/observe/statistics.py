"""Mean and standard deviation of observations: measured once, then constant and stored in datasets and checkpoints.

The policy network normalises with ``mean`` and ``divisor``, so behavioural cloning, PPO, evaluation and video all pass raw
observations.  The fingerprint of the layout prevents use with a network of another layout.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from nppsim.errors import UserError
from nppsim.observe import layout

MIN_SCALE_SHARE = 0.1  # minimum divisor relative to a component's natural scale; smaller divisors would amplify noise


class StatisticsError(UserError, ValueError):
    """Statistics are missing, not finite, of too few samples, or of another observation layout."""


class ObservationStatistics:
    """Streaming mean and standard deviation of every float32 key.

    Call ``update`` for each batch, then read ``mean``, ``std`` and ``divisor``.  uint8 keys have no statistics (the
    network scales them by 1/255) but are part of the fingerprint.

    keys: observation keys or short names (``layout.observation_keys``).
    Attributes: ``keys``, all keys; ``float_keys``, keys with statistics; ``fingerprint`` of the layout; ``count``, number
    of observations.
    """

    def __init__(self, keys: Iterable[str]):
        self.keys = layout.observation_keys(keys)
        self.float_keys = tuple(key for key in self.keys if layout.SPECS[key].dtype == "float32")
        self.fingerprint = layout.fingerprint(self.keys)
        self.count = 0
        self._mean = {key: np.zeros(layout.SPECS[key].shape) for key in self.float_keys}
        self._squares = {key: np.zeros(layout.SPECS[key].shape) for key in self.float_keys}  # sum of squared deviations

    def update(self, observations: Mapping[str, np.ndarray]) -> None:
        """Add a batch of N >= 0 observations: arrays [N, *shape] for every float key; other keys are ignored.

        Raises StatisticsError if a key is missing, has the wrong shape, or contains NaN or infinity.
        """
        batch = {key: self._checked(key, observations) for key in self.float_keys}
        sizes = {key: len(values) for key, values in batch.items()}
        if len(set(sizes.values())) > 1:
            raise StatisticsError(f"keys of one batch differ in length: {sizes}")
        size = next(iter(sizes.values()), 0)
        if size == 0:
            return
        # Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979).
        total = self.count + size
        for key, values in batch.items():
            mean = values.mean(axis=0)
            squares = np.square(values - mean).sum(axis=0)
            delta = mean - self._mean[key]
            self._mean[key] = self._mean[key] + delta * (size / total)
            self._squares[key] = self._squares[key] + squares + np.square(delta) * (self.count * size / total)
        self.count = total

    @property
    def mean(self) -> dict[str, np.ndarray]:
        """float64 array per float key, in the key's shape and unit."""
        self._require_samples()
        return {key: value.copy() for key, value in self._mean.items()}

    @property
    def std(self) -> dict[str, np.ndarray]:
        """float64 population standard deviation per float key, in the key's shape and unit."""
        self._require_samples()
        return {key: np.sqrt(value / self.count) for key, value in self._squares.items()}

    @property
    def divisor(self) -> dict[str, np.ndarray]:
        """Divisor of the network's normalisation: the larger of ``std`` and a tenth of the natural scale.

        The minimum limits the input of a component that is nearly constant in the data and changes later.
        """
        return {
            key: np.maximum(std, MIN_SCALE_SHARE * np.asarray(layout.SPECS[key].scale)) for key, std in self.std.items()
        }

    def require(self, fingerprint: str, owner: str) -> None:
        """Raise StatisticsError unless ``fingerprint`` is the fingerprint of the statistics.

        owner: object that ``fingerprint`` belongs to, for the message.
        """
        if fingerprint != self.fingerprint:
            raise StatisticsError(
                f"observation statistics have layout {self.fingerprint} ({', '.join(self.keys)}), {owner} has layout "
                f"{fingerprint}: rebuild the dataset and pretrain again with the current observation layout"
            )

    def to_dict(self) -> dict:
        """Return ``keys`` (list), ``fingerprint`` (str), ``count`` (int), ``mean`` and ``std`` (key -> float64 array)."""
        return {
            "keys": list(self.keys),
            "fingerprint": self.fingerprint,
            "count": self.count,
            "mean": self.mean,
            "std": self.std,
        }

    @classmethod
    def from_dict(cls, data: Mapping) -> "ObservationStatistics":
        """Load the result of ``to_dict``.

        Raises StatisticsError for missing fields, another layout, fewer than 2 samples, wrong shapes, values that are not
        finite, and negative standard deviations.
        """
        absent = [field for field in ("keys", "fingerprint", "count", "mean", "std") if field not in data]
        if absent:
            raise StatisticsError(f"observation statistics do not contain {', '.join(absent)}: measure them again")
        try:
            result = cls(data["keys"])
        except ValueError as error:
            raise StatisticsError(f"observation statistics of another layout ({error}): measure them again") from error
        result.require(data["fingerprint"], "their file")
        result.count = int(data["count"])
        result._require_samples()
        for key in result.float_keys:
            for field in ("mean", "std"):
                if key not in data[field]:
                    raise StatisticsError(f"observation statistics do not contain {field} of {key}: measure them again")
                values = np.asarray(data[field][key], dtype=np.float64)
                shape = layout.SPECS[key].shape
                if values.shape != shape:
                    raise StatisticsError(f"{field} of {key} has shape {values.shape}, expected {shape}")
                bad = ~np.isfinite(values) if field == "mean" else ~(np.isfinite(values) & (values >= 0))
                if bad.any():
                    index = tuple(np.argwhere(bad)[0])
                    raise StatisticsError(
                        f"{field} of {layout.component_name(key, index)} is {values[index]}: measure them again"
                    )
            result._mean[key] = np.array(data["mean"][key], dtype=np.float64)
            result._squares[key] = np.square(np.asarray(data["std"][key], dtype=np.float64)) * result.count
        return result

    def _require_samples(self) -> None:
        if self.float_keys and self.count < 2:
            raise StatisticsError(
                f"observation statistics need at least 2 samples, these have {self.count}: call update() with "
                f"observations of demonstrations, or of random play if there are no demonstrations"
            )

    def _checked(self, key: str, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        if key not in observations:
            raise StatisticsError(f"batch does not contain {key}; it has {', '.join(observations) or 'nothing'}")
        values = np.asarray(observations[key], dtype=np.float64)
        shape = layout.SPECS[key].shape
        if values.ndim != len(shape) + 1 or values.shape[1:] != shape:
            raise StatisticsError(f"{key} has shape {values.shape}, expected (N, {', '.join(map(str, shape))})")
        bad = ~np.isfinite(values)
        if bad.any():
            index = tuple(np.argwhere(bad)[0])
            name = layout.component_name(key, index[1:])
            raise StatisticsError(
                f"{name} is {values[index]} in row {index[0]}: observations must be finite; simulate that level alone to "
                "find the cause"
            )
        return values
