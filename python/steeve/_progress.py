"""The line on stderr that ``progress=True`` shows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steeve._steeve import Progress

# A search that ends before that is not worth a line.
_PATIENCE = 0.5
_INTERVAL = 0.1


class ProgressLine:
    """Shows on one line of stderr how far a search is."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._width = 0
        self._last = 0.0

    def __call__(self, now: Progress) -> None:
        """Show how far the search is."""
        if now.seconds < max(_PATIENCE, self._last + _INTERVAL):
            return
        self._last = now.seconds
        text = f"steeve: {now.seconds:.1f} s, {now.nodes:,} nodes, peak {now.peak:,}, bound {now.bound:,}"
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def finish(self) -> None:
        """Clear the line."""
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)
