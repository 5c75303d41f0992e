"""Sums of unit costs over the layers of stages, for all stages of many layouts at once: as solver.cost.pipeline.total, digit for digit."""
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from solver.cost.unit import UnitCosts
from solver.domain.model import LayerClass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StageSums:
    """Layouts of as many stages and virtual stages. Every sum adds classes in the model's order, then embedding, then head, less shared ends."""

    classes: tuple[LayerClass, ...]
    units: Sequence[UnitCosts]
    unit: Ints                                             # [layouts, stages] of `units`
    layers: Ints                                           # [layouts, stages, virtual stages, classes]

    def chunks(self, attribute: str) -> Floats:
        """[layouts, stages, virtual stages] sums of one number of `PartCost` over every chunk."""
        by_class, embedding, head, shared = self._parts(attribute)
        value = np.zeros(self.layers.shape[:-1])
        for i in range(len(self.classes)):
            value = value + self.layers[..., i] * by_class[i][:, :, None]
        value[:, 0, 0] += embedding[:, 0]
        value[:, -1, -1] += head[:, -1]
        if self.layers.shape[1] * self.layers.shape[2] == 1:
            value[:, 0, 0] -= shared[:, 0]
        return value

    def stages(self, attribute: str) -> Floats:
        """[layouts, stages] the same over whole stages."""
        return self._whole(*self._parts(attribute))

    def sync_s(self) -> Floats:
        """[layouts, stages] seconds after the drain: the longest piece of each."""
        pieces = max((len(u.sync) for u in self.units), default=0)
        found = []
        for k in range(pieces):
            each = [u.sync[min(k, len(u.sync) - 1)] for u in self.units]
            by_class = [self._column([piece.per_layer_s[cls] for piece in each]) for cls in self.classes]
            constant, embedding, head, shared = (self._column([getattr(piece, name) for piece in each])
                                                 for name in ("constant_s", "embedding_s", "head_s", "shared_ends_s"))
            found.append(self._whole(by_class, embedding, head, shared, constant))
        return np.asarray(np.max(found, axis=0))

    def capacity_bytes(self) -> Floats:
        return self._column([u.capacity_bytes for u in self.units])

    def logits_bytes(self) -> Floats:
        """Of the last stage, which alone has them."""
        found = np.zeros(self.unit.shape)
        found[:, -1] = self._column([u.logits_bytes for u in self.units])[:, -1]
        return found

    def buffers_bytes(self) -> Floats:
        """Of each stage; the last one's beside its logits."""
        found = self._column([u.buffers_bytes for u in self.units])
        found[:, -1] = self._column([u.head_buffers_bytes for u in self.units])[:, -1]
        return found

    def _column(self, values: list[float]) -> Floats:
        """One number of every unit, by stage."""
        return np.array(values)[self.unit]

    def _parts(self, attribute: str) -> tuple[list[Floats], Floats, Floats, Floats]:
        of = attrgetter(attribute)
        return ([self._column([of(u.layers[cls]) for u in self.units]) for cls in self.classes], self._column([of(u.embedding) for u in self.units]),
                self._column([of(u.head) for u in self.units]), self._column([of(u.shared_ends) for u in self.units]))

    def _whole(self, by_class: list[Floats], embedding: Floats, head: Floats, shared: Floats, constant: Floats | float = 0.0) -> Floats:
        counts = self.layers.sum(axis=2)
        value = np.zeros(self.unit.shape) + constant
        for i in range(len(self.classes)):
            value = value + counts[..., i] * by_class[i]
        value[:, 0] += embedding[:, 0]
        value[:, -1] += head[:, -1]
        if value.shape[1] == 1:
            value[:, 0] -= shared[:, 0]
        return value
