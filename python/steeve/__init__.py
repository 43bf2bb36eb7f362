"""Memory plans for tensor graphs: smaller, proven, with a picture.

Blocks of bytes that are needed from one step to another share memory where they are never needed together:

>>> import steeve
>>> plan = steeve.plan(lower=[0, 1, 2], upper=[2, 3, 4], size=[1000, 500, 1000], align=64)
>>> plan.peak, plan.bound, plan.optimal
(1536, 1536, True)
>>> plan.offsets
(0, 1024, 0)

``steeve.read`` takes files: models, recorded graphs, block lists, plans. ``steeve.GraphBuilder`` takes a graph of your
own. In a notebook a plan is shown as a picture: width is lifetime, height is size, vertical position is offset.
"""

from steeve._errors import DoesNotFit, Error, InternalError, InvalidArgument, InvalidFile, InvalidInput
from steeve._steeve import (
    Alive,
    Blocks,
    Change,
    Comparison,
    Fault,
    FitStep,
    Fitted,
    Graph,
    GraphBuilder,
    MemoryPlan,
    Place,
    Plan,
    PlanFile,
    Progress,
    Tensor,
    Violation,
    __version__,
    check,
    plan,
    read,
)

__all__ = [
    "Alive",
    "Blocks",
    "Change",
    "Comparison",
    "DoesNotFit",
    "Error",
    "Fault",
    "FitStep",
    "Fitted",
    "Graph",
    "GraphBuilder",
    "InternalError",
    "InvalidArgument",
    "InvalidFile",
    "InvalidInput",
    "MemoryPlan",
    "Place",
    "Plan",
    "PlanFile",
    "Progress",
    "Tensor",
    "Violation",
    "__version__",
    "check",
    "plan",
    "read",
]
