"""What is compiled or loaded at its first call, called before there are requests."""

from __future__ import annotations

from jackfield.model_executor.warm_up.run import warm_up

__all__ = ("warm_up",)
