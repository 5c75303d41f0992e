"""Which GPUs go to which stage: tensor-parallel groups packed into nodes, and the other ways to pack that bring other stages side by side."""
from collections.abc import Callable, Iterator, Sequence

from solver.domain.cluster import NodeGroup
from solver.domain.layout import Layout, StageLayout
from solver.domain.problem import Problem

Gpu = tuple[str, int, int]                                 # node group, node, index in the node
Blocks = list[list[Gpu]]                                   # tensor-parallel groups of one stage, in rank order
Node = tuple[str, int]
Near = tuple[bool, ...]                                    # per stage: whether it and the next one lie in one block of the fabric

STEPS = 4_000                                              # of the search for other packings
MOST_NODES = 64                                            # clusters in which that search is tried


def usable_gpus(group: NodeGroup, node: int) -> Sequence[int]:
    """Indices of the GPUs of a node that may be used."""
    gone = {g.gpu for g in group.unavailable_gpus if g.node == node}
    return range(group.gpus_per_node) if not gone else [i for i in range(group.gpus_per_node) if i not in gone]


def tensor_groups_available(group: NodeGroup, tp: int) -> int:
    """How many tensor-parallel groups of `tp` GPUs the node group holds when used for nothing else: inside nodes, or of whole nodes."""
    per_node = group.gpus_per_node
    lost: dict[int, int] = {}
    for gone in {(g.node, g.gpu) for g in group.unavailable_gpus}:
        lost[gone[0]] = lost.get(gone[0], 0) + 1
    if tp > per_node:
        return 0 if tp % per_node else (group.nodes - len(lost)) // (tp // per_node)
    return (group.nodes - len(lost)) * (per_node // tp) + sum((per_node - n) // tp for n in lost.values())


class GroupPool:
    """Hands out the GPUs of one node group, each block from the first node that has room for it."""

    def __init__(self, group: NodeGroup) -> None:
        self.group = group
        self._impaired = {g.node for g in group.unavailable_gpus}
        self._used: dict[int, int] = {}
        self._first: dict[int, int] = {}                   # by tensor degree: no node before has room

    def block(self, tp: int) -> list[Gpu] | None:
        """The next `tp` GPUs that may form a tensor-parallel group, or None when there are none left."""
        per_node = self.group.gpus_per_node
        if tp > per_node:
            return self._whole_nodes(tp, tp // per_node) if tp % per_node == 0 else None
        for node in range(self._first.get(tp, 0), self.group.nodes):
            self._first[tp] = node
            chosen = self.take(node, tp)
            if chosen is not None:
                return chosen
        self._first[tp] = self.group.nodes
        return None

    def take(self, node: int, tp: int) -> list[Gpu] | None:
        """`tp` GPUs of one node, or None where it has fewer."""
        free = usable_gpus(self.group, node) if node in self._impaired else range(self.group.gpus_per_node)
        used = self._used.get(node, 0)
        if used + tp > len(free):
            return None
        self._used[node] = used + tp
        return [(self.group.name, node, g) for g in free[used:used + tp]]

    def _whole_nodes(self, tp: int, nodes: int) -> list[Gpu] | None:
        found: list[int] = []
        for node in range(self._first.get(tp, 0), self.group.nodes):
            if node not in self._impaired and node not in self._used:
                found.append(node)
            if len(found) == nodes:
                self._first[tp] = node + 1
                return [gpu for whole in found for gpu in self.take(whole, self.group.gpus_per_node) or ()]
        return None


def needed(layout: Layout, stage: StageLayout) -> int:
    """Tensor-parallel groups of a stage, all replicas together."""
    return layout.replicas * stage.dp * stage.cp


def pack(problem: Problem, layout: Layout) -> dict[int, Blocks] | None:
    """Blocks by stage: the widest tensor degrees first, so that blocks stay aligned; None where that leaves no room.

    Stages bound to one node group come before those that may straddle several, which share what is left.
    """
    pools = {g.name: GroupPool(g) for g in problem.cluster.node_groups}
    single = sorted((i for i in range(layout.pp) if len(layout.stages[i].groups) == 1), key=lambda i: (-layout.stages[i].tp, i))
    found: dict[int, Blocks] = {}
    for i in single:
        stage = layout.stages[i]
        blocks: Blocks = []
        while len(blocks) < needed(layout, stage) and (block := pools[stage.groups[0]].block(stage.tp)) is not None:
            blocks.append(block)
        if len(blocks) < needed(layout, stage):
            return None
        found[i] = blocks
    return _straddling(layout, pools, found)


def _straddling(layout: Layout, pools: dict[str, GroupPool], found: dict[int, Blocks]) -> dict[int, Blocks] | None:
    """Add the stages that may lie in several groups, each from its groups in turn; where a later one is left short, an earlier one gives way."""
    wide = [i for i in range(layout.pp) if i not in found]
    owners: dict[int, list[tuple[str, list[Gpu]]]] = {i: [] for i in wide}
    for i in wide:
        for _ in range(needed(layout, layout.stages[i])):
            if not _grow(layout, pools, owners, i, {i}):
                return None
    order = {name: n for n, name in enumerate(pools)}
    return {**found, **{i: [block for _, block in sorted(owned, key=lambda o: (order[o[0]], o[1]))] for i, owned in owners.items()}}


def _grow(layout: Layout, pools: dict[str, GroupPool], owners: dict[int, list[tuple[str, list[Gpu]]]], i: int, asked: set[int]) -> bool:
    """One block more for stage i: free, or one that another stage can replace."""
    stage = layout.stages[i]
    for name in stage.groups:
        block = pools[name].block(stage.tp)
        if block is not None:
            owners[i].append((name, block))
            return True
    for other, owned in owners.items():
        here = [o for o in owned if o[0] in stage.groups and layout.stages[other].tp == stage.tp]
        if other in asked or not here or not _grow(layout, pools, owners, other, asked | {other}):
            continue
        owned.remove(here[0])
        owners[i].append(here[0])
        return True
    return False


def other_packings(problem: Problem, layout: Layout, hopeful: Callable[[Near], bool] = lambda near: True) -> Iterator[dict[int, Blocks] | None]:
    """Packings that differ in which neighbouring stages lie side by side, within STEPS steps of a depth-first search over small clusters.

    Those of which `hopeful` says no are left out; whoever brings fewer neighbours together is then hopeless too. Ends with None where there may be
    more than were tried.
    """
    groups = {g.name: g for g in problem.cluster.node_groups}
    if sum(g.nodes for g in groups.values()) > MOST_NODES or any(s.tp > groups[g].gpus_per_node for s in layout.stages for g in s.groups):
        yield None
        return
    search = _Arrangements(groups, layout, hopeful)
    for nodes in search.run():
        pools = {name: GroupPool(g) for name, g in groups.items()}
        found: dict[int, Blocks] = {}
        for i, row in nodes.items():
            found[i] = [block for name, node in row if (block := pools[name].take(node, layout.stages[i].tp)) is not None]
        whole = _straddling(layout, pools, found)
        if whole is not None:
            yield whole
    if search.steps > STEPS:
        yield None


def may_share(groups: dict[str, NodeGroup], layout: Layout) -> Near:
    """Which neighbouring stages are small enough for one block of the fabric; the last and the first one where there are virtual stages."""
    sizes = {name: max([t.size for t in g.tiers if t.name != "network"], default=g.gpus_per_node) for name, g in groups.items()}
    gpus = [needed(layout, s) * s.tp for s in layout.stages]
    after = [*range(1, layout.pp), 0]
    return tuple(i != j and (j > i or layout.virtual_stages > 1) and a.groups == layout.stages[j].groups and len(a.groups) == 1
                 and gpus[i] + gpus[j] <= sizes[a.groups[0]] for i, (a, j) in enumerate(zip(layout.stages, after, strict=True)))


class _Arrangements:
    """Depth-first over the stages of single node groups: the nodes of their blocks, nodes that are alike tried once."""

    def __init__(self, groups: dict[str, NodeGroup], layout: Layout, hopeful: Callable[[Near], bool]) -> None:
        self.layout, self.groups = layout, groups
        self.possible, self.hopes, self.hopeful = may_share(groups, layout), dict[Near, bool](), hopeful
        self.free = {(name, n): len(usable_gpus(g, n)) for name, g in groups.items() for n in range(g.nodes)}
        self.order = [i for i in range(layout.pp) if len(layout.stages[i].groups) == 1]
        self.steps, self.seen = 0, set[Near]()

    def run(self) -> Iterator[dict[int, list[Node]]]:
        """Nodes of each stage's blocks, for every pattern of neighbours side by side that is met."""
        yield from self._place(0, {})

    def _place(self, at: int, placed: dict[int, list[Node]]) -> Iterator[dict[int, list[Node]]]:
        near = self._near(placed)
        if near not in self.hopes:
            self.hopes[near] = self.hopeful(near)
        if not self.hopes[near]:
            return
        if at == len(self.order):
            if near not in self.seen:
                self.seen.add(near)
                yield dict(placed)
            return
        i = self.order[at]
        tp = self.layout.stages[i].tp
        for row in self._options(i, placed):
            self.steps += 1
            if self.steps > STEPS:
                return
            for node in row:
                self.free[node] -= tp
            yield from self._place(at + 1, {**placed, i: row})
            for node in row:
                self.free[node] += tp

    def _near(self, placed: dict[int, list[Node]]) -> Near:
        """Which neighbours lie side by side, those that are not placed yet as if they did where they may."""
        domains, last = [self._domain(placed.get(i)) for i in range(self.layout.pp)], self.layout.pp - 1
        return tuple(self.possible[i] and (not (i in placed and after in placed) or domains[i] == domains[after] is not None)
                     for i, after in enumerate((*range(1, last + 1), 0)))

    def _options(self, i: int, placed: dict[int, list[Node]]) -> list[list[Node]]:
        """Blocks from each node on, and so around, or by what other nodes have left: first where the stage before lies."""
        stage = self.layout.stages[i]
        name, need, found, tried = stage.groups[0], needed(self.layout, stage), [], set()
        nodes = [(name, n) for n in range(self.groups[name].nodes)]
        last, first = self._domain(placed.get(i - 1)), self._domain(placed.get(0))
        for start in sorted(nodes, key=lambda node: (self._domain([node]) != last, node)):
            domain = self._domain([start])
            kin = [n for n in nodes if self._domain([n]) == domain]
            key = (self.free[start], tuple(sorted(self.free[n] for n in kin)), domain == last, domain == first)
            if key in tried or self.free[start] < stage.tp:
                continue
            tried.add(key)
            beyond = sorted((n for n in nodes if n not in kin), key=lambda n: (n < start, n))
            for order in (beyond, sorted(beyond, key=self._left), sorted(beyond, key=lambda n: -self._left(n))):
                around = [start, *(n for n in kin if n != start), *order]
                row = sorted([n for n in around for _ in range(self.free[n] // stage.tp)][:need])
                if len(row) == need and row not in found:
                    found.append(row)
        return found

    def _left(self, node: Node) -> int:
        return self.free[node]

    def _domain(self, row: list[Node] | None) -> tuple[str, int] | None:
        """The fabric block that all nodes of a row share; None where they do not, or are not placed."""
        if not row:
            return None
        group = self.groups[row[0][0]]
        size = max([t.size for t in group.tiers if t.name != "network"], default=group.gpus_per_node)
        blocks = {n * group.gpus_per_node // size for _, n in row}
        return (group.name, blocks.pop()) if len(blocks) == 1 and size >= group.gpus_per_node else None
