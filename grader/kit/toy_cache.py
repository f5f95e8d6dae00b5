"""The cache that a toy engine's scheduler is given: the reference's, which says what a wrong call lacks.

Calls that the contract leaves undefined (filing for a request without a table, say) end in a KeyError
somewhere below. Here they name the call, the request, and where the request stands.
"""

from solutions.paged_cache import KVCacheManager
from yaie.core.request import Request


class CacheMisuse(RuntimeError):
    """The cache was asked for something that the request's state does not allow."""


class ToyCache(KVCacheManager):
    """Knows of each request whether it has a table on the device, or blocks on the host."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._tables: set[Request] = set()
        self._on_host: set[Request] = set()

    def admit(self, request: Request) -> int:
        if request in self._tables:
            raise CacheMisuse(f"admit({request}), but it has been admitted, and not freed since")
        if request in self._on_host:
            raise CacheMisuse(f"admit({request}), but its blocks are on the host: `swap_in` it")
        computed = super().admit(request)
        self._tables.add(request)
        return computed

    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        self._need_table("allocate", request)
        return super().allocate(request, num_tokens, keep_free=keep_free)

    def commit(self, request: Request) -> None:
        self._need_table("commit", request)
        super().commit(request)

    def swap_out(self, request: Request) -> bool:
        self._need_table("swap_out", request)
        if not super().swap_out(request):
            return False
        self._tables.remove(request)
        self._on_host.add(request)
        return True

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        if request not in self._on_host:
            raise CacheMisuse(
                f"swap_in({request}), but it has no blocks on the host; its status is "
                f"{request.status.value}"
            )
        if not super().swap_in(request, num_tokens, keep_free=keep_free):
            return False
        self._on_host.remove(request)
        self._tables.add(request)
        return True

    def free(self, request: Request, *, keep: bool = True) -> None:
        super().free(request, keep=keep)
        self._tables.discard(request)
        self._on_host.discard(request)

    def _need_table(self, call: str, request: Request) -> None:
        if request not in self._tables:
            where = (
                "its blocks are on the host" if request in self._on_host else "it holds no blocks"
            )
            raise CacheMisuse(
                f"{call}({request}), but it has no table: {where}, and its status is "
                f"{request.status.value}"
            )
