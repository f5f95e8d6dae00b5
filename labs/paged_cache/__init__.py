"""Lab 3: K and V in fixed-size blocks, found through a table, as an operating system pages memory."""

from .block_manager import BlockManager
from .kv_cache_manager import KVCacheManager
from .kv_pool import KVPool

__all__ = ["BlockManager", "KVCacheManager", "KVPool"]
