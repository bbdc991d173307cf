"""The table and the JSON that every benchmark ends in: stock, saltctx, ratio, target."""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import re
import statistics
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

COMPARE = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}
TARGET = re.compile(r"(ratio|saltctx) (<=|>=|==) ([0-9.]+)")


@dataclass(frozen=True)
class Row:
    """
    One measured thing.

    stock, saltctx
        A number, or the samples whose median counts; None where a side was not measured.
    better
        "less" or "more": which way is good; the ratio always says how many times better saltctx is. "zero": a count
        that should be nought, where a ratio says nothing.
    target
        "ratio >= 6" or "saltctx <= 0"; empty where there is none.
    """

    name: str
    stock: float | Sequence[float] | None
    saltctx: float | Sequence[float] | None
    unit: str = ""
    better: str = "less"
    target: str = ""

    def __post_init__(self) -> None:
        if self.better not in ("less", "more", "zero"):
            raise ValueError(f"better is 'less', 'more' or 'zero', not {self.better!r}")
        if self.target and not TARGET.fullmatch(self.target):
            raise ValueError(f"a target reads 'ratio >= 6' or 'saltctx <= 0', not {self.target!r}")

    @property
    def before(self) -> float | None:
        return _median(self.stock)

    @property
    def after(self) -> float | None:
        return _median(self.saltctx)

    @property
    def ratio(self) -> float | None:
        up, down = (self.after, self.before) if self.better == "more" else (self.before, self.after)
        if up is None or not down or self.better == "zero":
            return None
        return up / down

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing to hold against it."""
        if not self.target:
            return None
        match = TARGET.fullmatch(self.target)
        assert match is not None
        what, compare, wanted = match.groups()
        value = self.ratio if what == "ratio" else self.after
        return None if value is None else COMPARE[compare](value, float(wanted))

    def as_json(self) -> dict[str, Any]:
        row = {
            "name": self.name,
            "unit": self.unit,
            "better": self.better,
            "stock": self.before,
            "saltctx": self.after,
            "ratio": self.ratio,
            "target": self.target,
            "met": self.met,
        }
        samples = {
            side: list(values)
            for side, values in (("stock", self.stock), ("saltctx", self.saltctx))
            if isinstance(values, Sequence)
        }
        return {**row, "samples": samples} if samples else row


class Report:
    """Rows as they come in, then one table, one JSON file, one exit code."""

    def __init__(self, title: str, note: str = "") -> None:
        self.title = title
        self.note = note
        self.rows: list[Row] = []

    def add(self, *args: Any, **kwargs: Any) -> Row:
        row = Row(*args, **kwargs)
        self.rows.append(row)
        return row

    def missed(self) -> list[Row]:
        return [row for row in self.rows if row.met is False]

    def lines(self) -> list[list[str]]:
        """Headings and rows as text; without the last column where nothing has a target."""
        lines = [["", "stock", "saltctx", "ratio", "target"]]
        for row in self.rows:
            lines.append([_name(row), _number(row.before), _number(row.after), _ratio(row.ratio), _target(row)])
        return lines if any(row.target for row in self.rows) else [line[:-1] for line in lines]

    def show(self, console: Console | None = None) -> None:
        headings, *lines = self.lines()
        table = Table(title=self.title, caption=self.caption())
        for heading in headings:
            table.add_column(heading, justify="right" if heading else "left")
        for row, line in zip(self.rows, lines, strict=True):
            table.add_row(*(cell.replace("`", "") for cell in line), style="bold red" if row.met is False else None)
        # A file or a log has no width of its own; 80 columns would break every name in two.
        (console or Console(width=None if sys.stdout.isatty() else 120)).print(table)

    def markdown(self) -> str:
        headings, *lines = self.lines()
        rules = ["---", *["---:"] * (len(headings) - 1)]
        table = ["| " + " | ".join(line) + " |" for line in (headings, rules, *lines)]
        return "\n".join([*table, "", self.caption()])

    def caption(self) -> str:
        facts = environment()
        gil = "" if facts["gil"] else " without the GIL"
        salt = f"Salt {facts['salt']}, " if facts["salt"] else ""
        words = f"{salt}Python {facts['python']}{gil}, {facts['cpus']} cores"
        return f"{words}. {self.note}" if self.note else words

    def save(self, path: Path) -> None:
        data = {
            "title": self.title,
            "note": self.note,
            "environment": environment(),
            "rows": [row.as_json() for row in self.rows],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=2) + "\n")

    def finish(self, options: argparse.Namespace) -> int:
        """Show the table, write the JSON; with --check, non-zero if a target is missed."""
        self.show()
        if options.json:
            self.save(options.json)
            print(f"figures: {options.json}")
        missed = self.missed()
        for row in missed:
            print(f"missed: {row.name}: {row.target}", file=sys.stderr)
        return 1 if missed and options.check else 0


def add_arguments(parser: argparse.ArgumentParser, json_name: str) -> None:
    """The options every benchmark has."""
    parser.add_argument("--json", type=Path, default=Path(json_name), metavar="FILE", help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")


def environment() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "python": platform.python_version(),
        "gil": not sysconfig.get_config_var("Py_GIL_DISABLED") or sys._is_gil_enabled(),
        "salt": _version("salt"),
        "saltctx": _version("saltctx"),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _median(value: float | Sequence[float] | None) -> float | None:
    if value is None or isinstance(value, (int, float)):
        return value
    return statistics.median(value) if value else None


def _name(row: Row) -> str:
    return f"{row.name} ({row.unit})" if row.unit else row.name


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}x"


def _target(row: Row) -> str:
    if not row.target:
        return ""
    sign = {True: "met", False: "MISSED", None: "not measured"}[row.met]
    return f"{row.target}: {sign}"
