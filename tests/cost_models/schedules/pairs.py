"""A plain simulator of overlapped pairs: a forward and a backward are one block, and both outputs leave at its end."""

from cost_models.schedules.table import Action, ActionTable, Kind

Block = tuple[Action, ...]


def paired_span_s(table: ActionTable, f: float, b: float, w: float) -> float:
    """The span of equal stages without hops, where every whole backward right after a forward is paired with it."""
    seconds = {Kind.FORWARD: f, Kind.BACKWARD: b + w, Kind.INPUT_GRAD: b, Kind.WEIGHT_GRAD: w}
    queues = [_blocks(table.rank_actions(rank))[::-1] for rank in range(table.ranks)]
    clock, done = [0.0] * table.ranks, dict[tuple[bool, int, int], float]()
    while any(queues):
        for rank, queue in enumerate(queues):
            if not queue:
                continue
            awaited = [key for action in queue[-1] for key in _awaited(table, rank, action)]
            if not all(key in done for key in awaited):
                continue
            block = queue.pop()
            start = max([clock[rank], *(done[key] for key in awaited)])
            clock[rank] = start + sum(seconds[action.kind] for action in block)
            for kind, chunk, micro_batch, _ in block:
                if kind != Kind.WEIGHT_GRAD:
                    done[kind == Kind.FORWARD, int(table.placement.stage_of()[rank, chunk]), micro_batch] = clock[rank]
    return max(clock)


def _blocks(actions: list[Action]) -> list[Block]:
    blocks: list[Block] = []
    for action in actions:
        before = blocks[-1] if blocks else ()
        if action.kind == Kind.BACKWARD and len(before) == 1 and before[0].kind == Kind.FORWARD:
            blocks[-1] = (*before, action)
        else:
            blocks.append((action,))
    return blocks


def _awaited(table: ActionTable, rank: int, action: Action) -> list[tuple[bool, int, int]]:
    place = table.placement
    stage, forward = int(place.stage_of()[rank, action.chunk]), action.kind == Kind.FORWARD
    sender, length = stage + (-1 if forward else 1), place.stages // place.routes
    if action.kind == Kind.WEIGHT_GRAD or sender < 0 or sender // length != stage // length:
        return []
    return [(forward, sender, action.micro_batch)]
