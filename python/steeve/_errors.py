"""The exceptions of this package. Each is an ordinary exception of Python as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steeve._steeve import Alive, Fitted, Plan


class Error(Exception):
    """What all exceptions of this package are."""


class InvalidArgument(Error, ValueError):
    """An argument with a wrong value.

    >>> import steeve
    >>> try:
    ...     steeve.plan([0, 1], [2, 3], [64])
    ... except steeve.InvalidArgument as error:
    ...     print(error.argument, "|", error)
    size | size: wrong length: expected 2 as in lower, got 1
    """

    def __init__(self, message: str, *, argument: str = "", index: int | None = None) -> None:
        """Keep the name of the argument, and the index of the wrong item in it."""
        super().__init__(message)
        self.argument = argument
        self.index = index


class InvalidInput(Error, ValueError):
    """Blocks, a graph or a model that can't be planned as they are."""


class InvalidFile(Error, ValueError):
    """A file with something wrong in it, or none that can be planned."""

    def __init__(self, message: str, *, path: str = "") -> None:
        """Keep the path of the file."""
        super().__init__(message)
        self.path = path


class DoesNotFit(Error):
    """A plan above the capacity of a memory.

    >>> import steeve
    >>> try:
    ...     steeve.plan([0, 1], [2, 3], [64, 100], names=["conv", "relu"], capacity=128)
    ... except steeve.DoesNotFit as error:
    ...     print(error.needs, error.capacity, error.proved, [it.name for it in error.alive])
    164 128 True ['relu', 'conv']
    """

    def __init__(
        self,
        message: str,
        *,
        memory: str = "memory",
        needs: int = 0,
        capacity: int = 0,
        proved: bool = False,
        alive: tuple[Alive, ...] = (),
        plan: Plan | None = None,
        fitted: Fitted | None = None,
    ) -> None:
        """Keep the figures, what is alive at the peak, and the smallest plan that was found."""
        super().__init__(message)
        #: The name of the memory.
        self.memory = memory
        #: No plan takes fewer bytes than this; of a graph, none with the same order and in-place results.
        self.needs = needs
        #: The bytes that there are.
        self.capacity = capacity
        #: Whether it is proved that no plan fits; else none was found. Of a graph that is never proved: it may fit in
        #: another order, or with other in-place results.
        self.proved = proved
        #: What is alive at the fullest step, the largest first.
        self.alive = alive
        #: The smallest plan that was found, which is above the capacity.
        self.plan = plan
        #: Of `Graph.fit`: the smallest graph that was reached, its plan, and what was done; `needs` are its bytes.
        self.fitted = fitted


class InternalError(Error, RuntimeError):
    """A bug of this package. Please report it."""
