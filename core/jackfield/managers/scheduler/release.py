"""The one way out for a request, whatever ended it: finish, abort, error, stop. Called exactly once for each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from jackfield.ipc.messages import FinishReason, TokenLogprobs
from jackfield.managers.scheduler.batch import RowDeltas
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.life_log import LifeLog
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.request import Request, RequestState
from jackfield.managers.scheduler.running import RunningTable


@dataclass(kw_only=True)
class Ending:
    """A request that ends now.

    ids      tokens of its last entry that the detokenizer has not seen; logprobs: theirs, if it wants them
    insert   whether its committed KV may enter the cache; False after an error of its row
    pooled   what the model gave of its prompt, as in `TokenOutput`
    """

    request: Request
    finish: FinishReason
    ids: list[int] = field(default_factory=list)
    insert: bool = True
    logprobs: TokenLogprobs | None = None
    pooled: bytes = b""


@dataclass(kw_only=True)
class Ended:
    """uids that ended since the last step record."""

    finished: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)


class Releaser:
    """`live` is the registry of open requests, rid -> Request; who leaves it here never comes back."""

    def __init__(
        self,
        *,
        live: dict[str, Request],
        waiting: WaitingQueue,
        running: RunningTable,
        memory: KVMemory,
        deltas: RowDeltas,
        hold_back: HoldBack,
        outbox: Outbox,
        lives: LifeLog,
    ) -> None:
        self._live = live
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._deltas = deltas
        self._hold_back = hold_back
        self._outbox = outbox
        self._lives = lives
        self.ended = Ended()

    def release(self, endings: list[Ending], now: float) -> None:
        """End these requests. What they hold is given back, and their last entries stand in the outbox."""
        waiting_rows: list[int] = []
        running_rows: list[int] = []
        for ending in endings:
            request = ending.request
            if request.state is RequestState.WAITING:
                retractions = 0
                if not self._waiting.withdraw(request.uid):
                    row = self._waiting.find(request.uid)
                    waiting_rows.append(row)
                    retractions = int(self._waiting.table["retractions"][row])
            elif request.state is RequestState.RUNNING:
                row = int(self._running.position[request.row])
                running_rows.append(row)
                retractions = int(self._running["retractions"][row])
                self.give_back(request, row, insert=ending.insert)
            else:
                raise RuntimeError(f"request {request.rid} (uid {request.uid}) is released twice")
            request.state = RequestState.FINISHED
            request.constraint = None
            request.times.enter(None, now)
            del self._live[request.rid]
            ended = self.ended.aborted if ending.finish.type == "abort" else self.ended.finished
            ended.append(request.uid)
            self._lives.ended(request, ending.finish, now)
            cached = request.cached_tokens or 0
            tiers = self._memory.tiers
            kept = {} if tiers is None else tiers.kept(request.uid, cached)
            self._outbox.finish(
                request, ending.ids, ending.finish, cached, kept, retractions, ending.logprobs, ending.pooled
            )
        if waiting_rows:
            self._waiting.drop(np.array(waiting_rows, dtype=np.intp))
        if running_rows:
            self._running.drop(np.array(running_rows, dtype=np.intp))
            self._running.reindex()

    def give_back(self, request: Request, at: int, *, insert: bool = True) -> None:
        """Row, slots and lease of the request at running row `at`, which its caller removes. Only tokens whose step was
        committed are offered to the cache: nothing that a launched step may still be writing, and nothing of a failed one.
        """
        memory, lease, row = self._memory, request.lease, request.row
        if lease is None:
            raise RuntimeError(f"request {request.rid} runs without a lease")
        self._hold_back.forget(request)
        allocated = int(self._running["allocated"][at])
        owned_from = lease.length
        written = int(self._running["written"][at])
        if insert and written > lease.length:
            owned_from = memory.commit(
                lease, request.key(written), row, final=True, floor=int(self._running["floor"][at])
            ).length
            self._hold_back.learned(written, owned_from)
        memory.free(memory.rows.table[row, owned_from:allocated])
        memory.release(lease)
        request.lease = None
        self._deltas.close(row)
        memory.rows.free(row)

    def take_ended(self) -> Ended:
        ended, self.ended = self.ended, Ended()
        return ended
