"""The same jobs on a real threaded minion, first stock, then with `saltctx: true`.

    python bench/demo.py [--jobs 400] [--rounds 15] [--update-readme]

A master and a minion on loopback, in a temporary directory: many concurrent jobs, each with a retcode of its own, then
jobs one at a time. Ends in a table, demo.png and demo.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import report
from realsalt import (
    ONE_AT_A_TIME,
    Call,
    RealSalt,
    Return,
    dry_and_real_runs,
    ended_by_sigterm,
    retcode_jobs,
)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PICTURE = "docs/demo.png"
BEGIN, END = "<!-- demo:begin -->", "<!-- demo:end -->"
IN_FLIGHT = 16
WARM_UP = 8
STATE_RUNS_IN_FLIGHT = 8


def main() -> int:
    options = parse()
    console = Console()
    sides: dict[str, dict[str, Any]] = {}
    with ended_by_sigterm(), progress_line(console) as progress:
        for name, flag in (("stock", False), ("saltctx", True)):
            task = progress.add_task(name, total=None, what="starting master and minion", wrong=0, rate=0.0)
            with RealSalt(saltctx=flag) as salt:
                sides[name] = measure(salt, options, progress, task)
            progress.update(task, what="done")
    outcome = tabulate(sides, options)
    code = outcome.finish(options)
    draw(outcome, options.png)
    console.print(f"picture: {options.png}")
    if options.update_readme:
        draw(outcome, ROOT / PICTURE)
        update_readme(outcome)
        console.print(f"table and picture put into {README.name}")
    return code


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=400, help="concurrent jobs (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=60, help="dry and real state runs (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each job on its own (default: %(default)s)")
    parser.add_argument("--png", type=Path, default=Path("demo.png"), help="default: %(default)s")
    parser.add_argument("--update-readme", action="store_true", help="put this run's table and picture into README.md")
    report.add_arguments(parser, "demo.json")
    return parser.parse_args()


def progress_line(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:8}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}"),
        TextColumn("{task.fields[rate]:.1f} jobs/s, wrong retcodes: [bold]{task.fields[wrong]}[/]"),
        TimeElapsedColumn(),
        console=console,
    )


def measure(salt: RealSalt, options: argparse.Namespace, progress: Progress, task: Any) -> dict[str, Any]:
    """All jobs of the demo on one minion."""
    salt.run_many([Call("test.ping")] * WARM_UP, in_flight=1)
    total = options.jobs + 2 * options.pairs + options.rounds * len(ONE_AT_A_TIME)
    progress.update(task, total=total, what=f"{options.jobs} jobs, {IN_FLIGHT} in flight")
    began = time.perf_counter()
    counts = {"back": 0, "wrong": 0}

    def one_back(back: Return) -> None:
        counts["back"] += 1
        counts["wrong"] += back.wrong_retcode
        rate = counts["back"] / (time.perf_counter() - began)
        progress.update(task, advance=1, wrong=counts["wrong"], rate=rate)

    returns = salt.run_many(retcode_jobs(options.jobs), IN_FLIGHT, on_return=one_back)
    seconds = time.perf_counter() - began
    figures: dict[str, Any] = {
        "wrong": sum(back.wrong_retcode for back in returns),
        "foreign": sum(bool(back.foreign_keys) for back in returns),
        "lost": sum(back.lost for back in returns),
        "rate": (len(returns) - sum(back.lost for back in returns)) / seconds,
        "alone": {},
    }
    progress.update(task, what=f"{options.pairs} dry and {options.pairs} real state runs side by side")
    runs = salt.run_many(
        dry_and_real_runs(options.pairs), STATE_RUNS_IN_FLIGHT, on_return=lambda back: progress.advance(task)
    )
    figures["acted"] = sum(run.wrong_dry_run for run in runs)
    figures["stayed_dry"] = sum(run.wrong_real_run for run in runs)
    for run in runs:
        if run.acted is None:
            figures["lost"] += 1
            progress.console.print(f"no state's result: {run.call} came back with {run.data}", markup=False)
    for name, call in ONE_AT_A_TIME.items():
        progress.update(task, what=f"{name}, one at a time")
        figures["alone"][name] = []
        for _ in range(options.rounds):
            back = salt.run_many([call], in_flight=1)[0]
            figures["lost"] += back.lost
            if not back.lost:
                figures["alone"][name].append(1000 * back.seconds)
            progress.advance(task)
    return figures


def tabulate(sides: dict[str, dict[str, Any]], options: argparse.Namespace) -> report.Report:
    stock, saltctx = sides["stock"], sides["saltctx"]
    outcome = report.Report(
        "A real threaded minion, the same jobs",
        f"Master and minion on loopback; {options.jobs} jobs, {IN_FLIGHT} in flight, then jobs one at a time: "
        "medians from publish to return event.",
    )
    outcome.add(f"wrong retcodes of {options.jobs:,} jobs", stock["wrong"], saltctx["wrong"], better="zero")
    outcome.add("jobs that saw another job's `__context__`", stock["foreign"], saltctx["foreign"], better="zero")
    pairs = f"of {options.pairs} beside as many real ones"
    outcome.add(f"dry runs (`test=True`) that acted, {pairs}", stock["acted"], saltctx["acted"], better="zero")
    outcome.add("real runs that stayed dry", stock["stayed_dry"], saltctx["stayed_dry"], better="zero")
    outcome.add("jobs lost", stock["lost"], saltctx["lost"], better="zero")
    outcome.add(f"{IN_FLIGHT} jobs in flight", stock["rate"], saltctx["rate"], "jobs/s", better="more")
    for name in ONE_AT_A_TIME:
        outcome.add(f"`{name}`", stock["alone"][name], saltctx["alone"][name], "ms")
    return outcome


def draw(outcome: report.Report, path: Path) -> None:
    """Three panels: what goes wrong, how many jobs a second, how long one job takes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    wrong, foreign, acted, _stayed_dry, _lost, rate, *alone = outcome.rows
    went_wrong = [("wrong\nretcode", wrong), ("another job's\n__context__", foreign), ("dry run\nthat acted", acted)]
    panels = (
        ("jobs that went wrong", went_wrong),
        ("jobs a second, 16 in flight", [("", rate)]),
        ("one job, publish to return (ms)", [(row.name.strip("`"), row) for row in alone]),
    )
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 4), width_ratios=(2.6, 1.2, 4), layout="constrained")
    for axis, (title, bars) in zip(axes, panels, strict=True):
        for offset, side, colour in ((-0.2, "stock", "#b0b7bf"), (0.2, "saltctx", "#00a98f")):
            values = [(row.before if side == "stock" else row.after) or 0 for _, row in bars]
            drawn = axis.bar([at + offset for at in range(len(bars))], values, 0.38, label=side, color=colour)
            axis.bar_label(drawn, fmt=lambda value: f"{value:.3g}", fontsize=8, padding=2)
        axis.set_xticks(range(len(bars)), [label for label, _ in bars], fontsize=9)
        axis.set_title(title, fontsize=10)
        axis.margins(y=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].legend(frameon=False)
    figure.suptitle(outcome.title)
    figure.savefig(path, dpi=150)


def update_readme(outcome: report.Report) -> None:
    text = README.read_text()
    before, rest = text.split(BEGIN, 1)
    _old, after = rest.split(END, 1)
    README.write_text(f"{before}{BEGIN}\n{outcome.markdown()}\n\n![{outcome.title}]({PICTURE})\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
