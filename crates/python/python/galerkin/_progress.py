"""How far work is: a line in a terminal, an output that changes in a notebook."""

from __future__ import annotations

import sys
import time
from typing import Any

#: Seconds between two changes of the line.
_PAUSE = 0.2


class Progress:
    """Shown after two seconds, unless the work is over by then."""

    def __init__(self, what: str, shown: bool = True) -> None:
        self._what, self._shown = what, shown
        self._begun = self._changed = time.monotonic()
        self._first = 0
        self._total = 0
        self._epoch = ""
        self._handle: Any = None
        self._width = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def hear(self, event: dict[str, Any]) -> None:
        """An event of a training."""
        kind = event["event"]
        if kind == "started":
            self._first, self._total = event["step"], event["steps"]
        elif kind == "epoch":
            self._epoch = f", epoch {event['epoch']}, validation error {event['validation']:.3g}"
        elif kind in ("damaged", "clock_lost"):
            self._show(event["why"])
        elif kind == "step":
            self.count(event["step"], self._total, f"loss {event['loss']:.3g}{self._epoch}")

    def count(self, done: int, total: int, more: str = "") -> None:
        """So many are done."""
        now = time.monotonic()
        if not self._shown or now - self._begun < 2.0 or now - self._changed < _PAUSE:
            return
        self._changed = now
        left = (now - self._begun) / max(done - self._first, 1) * (total - done)
        self._show(f"{self._what}: {done} of {total}, {_duration(left)} left{', ' if more else ''}{more}")

    def end(self, words: str) -> None:
        """The last line, if there was one before."""
        if self._width or self._handle:
            self._show(words)

    def _show(self, words: str) -> None:
        if not self._shown:
            return
        if _in_notebook():
            from IPython.display import Pretty, display

            if self._handle is None:
                self._handle = display(Pretty(words), display_id=True)
            else:
                self._handle.update(Pretty(words))
        elif sys.stderr.isatty():
            sys.stderr.write("\r" + words.ljust(self._width))
            sys.stderr.flush()
            self._width = len(words)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
