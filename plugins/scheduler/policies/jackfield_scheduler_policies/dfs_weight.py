"""Schedule policy `dfs-weight`: depth first through the cache's prefix tree, the branch with most waiting requests first.
Requests that share a prefix run one after the other, so that it stays in the cache for all of them.

Within a node, those below it go before those that end in it; who has nothing cached comes last, by arrival.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import PolicyContext, PrefixForest, RequestTable, SchedulePolicy, SchedulerView, hookimpl


class DepthFirstByWeight(SchedulePolicy):
    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        if view.forest is None:
            return None  # the cache failed in this step, which the core has booked
        forest = view.forest
        ends = _ends(forest)
        # A node's own requests stand at the end of its stretch; longer matches inside it first.
        key = np.full(len(waiting), np.iinfo(np.int64).max)
        cached = forest.node >= 0
        key[cached] = ends[forest.node[cached]]
        return np.lexsort((waiting.uid, -forest.matched, key))


def _ends(forest: PrefixForest) -> NDArray[np.int64]:
    """Where the stretch of each node ends in the depth-first order of all requests, int64 [nodes].

    A node's requests and those below it are one stretch, `weight` long; its children lie in it from the front, the
    heaviest first. So a child begins at its parent's begin plus the weights of its heavier siblings.
    """
    weight, parent = forest.weight.astype(np.int64), forest.parent
    siblings = np.lexsort((np.arange(len(parent)), -weight, parent))
    before = np.cumsum(weight[siblings]) - weight[siblings]
    before -= before[np.searchsorted(parent[siblings], parent[siblings])]
    begin = np.empty(len(parent), dtype=np.int64)
    begin[siblings] = before
    above = parent.copy()
    while (inner := np.flatnonzero(above >= 0)).size:  # pointer doubling: as often as the logarithm of the depth
        begin[inner], above[inner] = begin[inner] + begin[above[inner]], above[above[inner]]
    return begin + weight


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return DepthFirstByWeight()
