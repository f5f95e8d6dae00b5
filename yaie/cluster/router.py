"""The router of Ray Serve's own interface that sends a prompt where its beginning has been computed.

Serve makes one in each process that has a handle of the deployment, here the ingress. It asks
`choose_replicas` for an order, takes the first replica that has room, and reports what happened through
the other methods. `policy.preference` says which order is right.
"""

from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from yaie.cluster.exchange import Asked
from yaie.cluster.policy import preference
from yaie.cluster.prefixes import PrefixIndex

KEY_BYTES = 1024
NOTHING = Asked({})


class PrefixRouter(RequestRouter):
    """Prefers the replica that was sent the longest beginning of the prompt, if its load allows."""

    def initialize_state(self, *, imbalance: int) -> None:
        """Called by Serve. imbalance: see `policy.preference`."""
        self._imbalance = imbalance
        self._index = PrefixIndex()
        self._in_progress: dict[str, int] = {}

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The candidates in the order in which they should be asked, each a rank of its own.

        Without those that the request was lost with: if there are no others, Serve asks again until one
        has come in their place.
        """
        asked = _asked(pending_request)
        named = ((_name(replica.replica_id), replica) for replica in candidate_replicas)
        by_name = {name: replica for name, replica in named if name not in asked.avoid}
        loads = {name: self._load(replica.replica_id) for name, replica in by_name.items()}
        seen = asked.beginnings
        key = seen[0] if seen else asked.body[-KEY_BYTES:]  # of prompts shorter than a chunk
        order = preference(loads, lambda name: self._index.match(name, seen), self._imbalance, key)
        if order:  # at once, for the next of a burst of prompts that begin alike
            self._index.add(order[0], seen)
        if pending_request is not None:  # wait a little longer each time that none has room
            pending_request.routing_context.should_backoff = True
        return [[by_name[name]] for name in order]

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """A request is on its way. Until `on_request_completed` it counts as load."""
        super().on_send_request(replica_id)
        name = _name(replica_id)
        self._in_progress[name] = self._in_progress.get(name, 0) + 1

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """It has ended, or was turned away."""
        super().on_request_completed(replica_id, internal_request_id)
        name = _name(replica_id)
        left = self._in_progress.get(name, 0) - 1
        if left > 0:
            self._in_progress[name] = left
        else:
            self._in_progress.pop(name, None)

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """The replica has accepted it, and will know this prompt."""
        self._index.add(_name(replica_id), _asked(pending_request).beginnings)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Its cache is gone with it."""
        super().on_replica_actor_died(replica_id)
        self._forget_missing()

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """The deployment has grown, shrunk, or replaced some."""
        super().update_replicas(replicas)
        self._forget_missing()

    def _load(self, replica_id: ReplicaID) -> int:
        """Requests in progress: our own, or more if the replica has lately spoken of others' too."""
        told = self.replica_queue_len_cache.get(replica_id) or 0
        return max(told, self._in_progress.get(_name(replica_id), 0))

    def _forget_missing(self) -> None:
        there = {_name(replica_id) for replica_id in self.curr_replicas}
        self._index.keep(there)
        self._in_progress = {
            name: number for name, number in self._in_progress.items() if name in there
        }


def _name(replica_id: ReplicaID) -> str:
    return str(replica_id.unique_id)


def _asked(pending: PendingRequest | None) -> Asked:
    """What the replica would be asked; nothing, if it is something else than an HTTP request."""
    for argument in pending.args if pending is not None else ():
        if isinstance(argument, Asked):
            return argument
    return NOTHING
