"""The filesystem that hosts share: the only package that makes system calls on a run folder."""

from fsctx.store.base import Store
from fsctx.store.posix import PosixStore, PublishForm

__all__ = ["PosixStore", "PublishForm", "Store"]
