"""The node cache: model files on the disk of the node, one copy for all agents there."""

from fsctx.cache.node import Entry, Fetched, NodeCache
from fsctx.cache.root import default_root

__all__ = ["Entry", "Fetched", "NodeCache", "default_root"]
