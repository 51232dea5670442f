"""Processes on this machine that work for the caller: how many, and how they are started."""

from .local import Context, cores

__all__ = ["Context", "cores"]
