"""The node cache: contexts on the disk of the node, one copy for all agents there."""

from fsctx.cache.folders import Entry
from fsctx.cache.node import Fetched, Finding, NodeCache
from fsctx.cache.root import default_root

__all__ = ["Entry", "Fetched", "Finding", "NodeCache", "default_root"]
