"""The plan of a tree as a cache beside its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from hsa_geo.errors import TreeError

if TYPE_CHECKING:
    from hsa_geo.data.plan import TreePlan

    Base = Any
else:
    Base = object

__all__ = ["PlanCache"]

_MADE_FROM = ("tree_index", "tree_level", "leaf_weight")


class PlanCache(Base):
    """Part of :class:`~hsa_geo.data.SignalTree`: :attr:`plan`, and what moves it along."""

    @property
    def plan(self) -> TreePlan:
        """The :class:`~hsa_geo.data.TreePlan` of this tree or batch, built once and cached.

        The cache belongs to the very ``tree_index``, ``tree_level`` and ``leaf_weight`` tensors it
        was made from, so a changed tree never sees an old plan; ``.to()`` and ``.pin_memory()``
        move it along.
        """
        from hsa_geo.data.plan import TreePlan

        cached = self._cached_plan()
        if cached is None:
            if "tree_index" not in self or "tree_level" not in self:
                raise TreeError(
                    "this SignalTree has no tree_index and tree_level: build it with "
                    "SignalTree.from_parents or a builder."
                )
            weight = self._store.get("leaf_weight")
            cached = TreePlan.from_index(self.tree_index, self.tree_level, weight)
            if cached.num_leaves != self.num_leaves:
                raise TreeError(
                    f"the tree has {cached.num_leaves} leaves but num_nodes is {self.num_leaves}: "
                    "use restrict(leaves) to remove leaves, or build a new tree."
                )
            self._remember(cached)
        return cached

    def _plan_key(self) -> tuple[Any, ...]:
        tensors = [self._store.get(key) for key in _MADE_FROM]
        return (*tensors, *map(_version, tensors))

    def _remember(self, plan: TreePlan) -> None:
        self.__dict__["_plan"] = (self._plan_key(), plan)

    def _cached_plan(self) -> TreePlan | None:
        key, plan = self.__dict__.get("_plan", (None, None))
        now = self._plan_key()
        if plan is not None:
            same = all(a is b for a, b in zip(key[:3], now))
            if same and key[3:] == now[3:]:
                return plan
        self.__dict__.pop("_plan", None)
        return None

    def _moved(self, move: Callable[[], Any], move_plan: Callable[[TreePlan], TreePlan]) -> Self:
        plan = self._cached_plan()
        move()
        if plan is not None:
            self._remember(move_plan(plan))
        return self

    def to(self, device: Any, *args: str, non_blocking: bool = False) -> Self:
        """Move all tensors (or those named in ``args``) and the cached plan to ``device``."""
        if args and not set(_MADE_FROM) & set(self.keys()) <= set(args):
            return super().to(device, *args, non_blocking=non_blocking)
        return self._moved(
            lambda: super(PlanCache, self).to(device, *args, non_blocking=non_blocking),
            lambda plan: plan.to(device, non_blocking=non_blocking),
        )

    def cpu(self, *args: str) -> Self:
        """Move to the CPU, as :meth:`to`."""
        return self.to("cpu", *args)

    def cuda(self, device: Any = None, *args: str, non_blocking: bool = False) -> Self:
        """Move to a CUDA device, as :meth:`to`."""
        where = "cuda" if device is None else device
        where = f"cuda:{where}" if isinstance(where, int) else where
        return self.to(where, *args, non_blocking=non_blocking)

    def pin_memory(self, *args: str) -> Self:
        """Pin all tensors (or those named in ``args``) and the cached plan."""
        return self._moved(
            lambda: super(PlanCache, self).pin_memory(*args), lambda plan: plan.pin_memory()
        )


def _version(value: Any) -> int:
    """Counter of in-place changes; tensors made in inference mode have none."""
    if not isinstance(value, Tensor) or value.is_inference():
        return 0
    return value._version
