"""What was measured, as a line, a table, and pictures.

usage: report.py FOLDER     (which has bench.json; writes bench.md and the pictures beside it)
"""

import json
import math
import statistics
import sys
from pathlib import Path

from cases import THREADS

COLOURS = {
    "ours lz4": "#1f77b4",
    "ours none": "#6baed6",
    "null": "#969696",
    "ext4": "#2ca02c",
    "squashfs": "#98df8a",
    "squashfuse_ll": "#d62728",
    "erofs": "#ff9896",
}
FIELDS = {"time": "us", "speed": "us", "cpu": "cpu_us", "memory": "anon_mib"}


def median(runs, field="us"):
    values = [run[field] for run in runs if field in run]
    return statistics.median(values) if values else None


def number(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def line(name, results):
    runs = results[name]
    return f"{name}: " + ", ".join(f"{system} {number(median(r))}" for system, r in runs.items())


def judged(goals, results):
    """Each goal with what was reached; ratios of medians."""
    listed = []
    for goal in goals:
        field = FIELDS[goal.kind]
        ours = median(results.get(goal.case, {}).get(goal.system, []), field)
        if goal.kind == "memory":
            if ours is not None:
                reached = ours <= goal.limit
                listed.append(
                    {"goal": goal.text, "kind": goal.kind, "limit": goal.limit, "reached": reached, "ours_mib": ours}
                )
            continue
        other = median(results.get(goal.over_case, {}).get(goal.over_system, []), field)
        if ours is None or other is None:
            continue
        ratio = other / ours if goal.kind == "speed" else ours / other
        reached = ratio >= goal.limit if goal.kind == "speed" else ratio <= goal.limit
        listed.append(
            {
                "goal": goal.text,
                "kind": goal.kind,
                "limit": goal.limit,
                "ratio": round(ratio, 3),
                "reached": reached,
                "ours_us": ours,
                "other_us": other,
            }
        )
    return listed


def tables(bench):
    machine = bench["machine"]
    text = [
        f"Kernel {machine['kernel']}, {machine['cpus']} x {machine['cpu']}, {machine['memory_gib']} GiB; medians of"
        f" {bench['rounds']} interleaved rounds{', quick run' if bench['quick'] else ''}.",
        "",
        "| goal | ours, us | other, us | ratio | wanted | |",
        "|---|---|---|---|---|---|",
    ]
    for goal in bench["goals"]:
        sign = ">=" if goal["kind"] == "speed" else "<="
        verdict = "reached" if goal["reached"] else "missed"
        if goal["kind"] == "memory":
            text.append(f"| {goal['goal']} | {number(goal['ours_mib'])} MiB | | | <= {goal['limit']} MiB | {verdict} |")
            continue
        text.append(
            f"| {goal['goal']} | {number(goal['ours_us'])} | {number(goal['other_us'])} | {goal['ratio']:.2f} |"
            f" {sign} {goal['limit']} | {verdict} |"
        )
    # These have tables of their own.
    results = {
        name: runs for name, runs in bench["results"].items() if not name.startswith(("threads ", "startup"))
    }
    systems = []
    for runs in results.values():
        systems += [system for system in runs if system not in systems]
    usual = [system for system in systems if system in COLOURS]
    if usual:
        text += ["", "| us a file | " + " | ".join(usual) + " |", "|---" * (len(usual) + 1) + "|"]
    others = []
    for name, runs in results.items():
        if not any(system in usual for system in runs) or name.startswith("epoch"):
            others.append(name)
            continue
        cells = [number(median(runs[system])) if system in runs else "" for system in usual]
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    if others:
        text += ["", "| case | us |", "|---|---|"]
        for name in others:
            cells = [f"{system} {number(median(runs))}" for system, runs in results[name].items()]
            text.append(f"| {name} | {', '.join(cells)} |")
    text += threads_table(bench["results"])
    text += cpu_table(results)
    text += startup_table(bench)
    return "\n".join(text) + "\n"


def threads_table(results):
    """The same reads by the number of threads that answer."""
    rows = []
    for name, runs in results.items():
        kind, _, what = name.partition(" ")
        if kind == "threads":
            cells = [number(median(runs.get(system, []))) for system in THREADS.values()]
            rows.append(f"| {what} | " + " | ".join(cells) + " |")
    if not rows:
        return []
    head = "| us a file by number of event threads | " + " | ".join(map(str, THREADS)) + " |"
    return ["", head, "|---" * (len(THREADS) + 1) + "|", *rows]


def startup_table(bench):
    """Until the mount answers, and what memory the daemon has then."""
    scale = 10 if bench["quick"] else 1
    titles = {
        "startup": f"1 cache of {10_000_000 // scale:,} samples",
        "startup caches": f"{1000 // scale:,} caches of 1,000 samples",
    }
    rows = []
    for name, title in titles.items():
        runs = bench["results"].get(name)
        if runs is None:
            continue
        for state in ["", " cold"]:
            ours, read = median(runs["ours" + state]), median(runs["read" + state])
            memory = number(median(runs["ours" + state], "anon_mib"))
            cells = [number(ours / 1000), number(read / 1000), f"{ours / read:.2f}", memory]
            rows.append(f"| {title},{state or ' warm'} | " + " | ".join(cells) + " |")
    if not rows:
        return []
    head = "| start-up | ours, ms | reading its files once, ms | ratio | daemon's anonymous memory, MiB |"
    return ["", head, "|---|---|---|---|---|", *rows]


def cpu_table(results):
    """CPU time of the daemons for small reads."""
    cells = {}
    for name, measured in results.items():
        for system, runs in measured.items():
            value = median(runs, "cpu_us")
            if name.startswith("read 4k warm") and value is not None:
                cells[name, system] = value
    names = list(dict.fromkeys(name for name, _ in cells))
    systems = list(dict.fromkeys(system for _, system in cells))
    if not cells:
        return []
    text = ["", "| CPU time of the daemon, us a file | " + " | ".join(systems) + " |", "|---" * (len(systems) + 1) + "|"]
    for name in names:
        text.append(f"| {name} | " + " | ".join(number(cells.get((name, system))) for system in systems) + " |")
    return text


# --- pictures ---


class Picture:
    """An SVG with a title and axes from zero."""

    WIDTH, HEIGHT = 760, 340
    LEFT, RIGHT, TOP, BOTTOM = 60, 150, 40, 40

    def __init__(self, title, unit, most):
        self.most = most * 1.1
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH} {self.HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{self.WIDTH}" height="{self.HEIGHT}" fill="white"/>',
            f'<text x="{self.LEFT}" y="20" font-size="15">{title}</text>',
        ]
        step = nice_step(self.most)
        value = 0.0
        while value <= self.most:
            y = self.y(value)
            self.parts.append(
                f'<line x1="{self.LEFT}" y1="{y:.1f}" x2="{self.WIDTH - self.RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
            )
            self.text(self.LEFT - 6, y + 4, f"{value:g}", "end")
            value += step
        self.text(self.LEFT - 6, self.TOP - 8, unit, "end")

    def y(self, value):
        return self.HEIGHT - self.BOTTOM - value / self.most * (self.HEIGHT - self.TOP - self.BOTTOM)

    def x(self, part):
        return self.LEFT + part * (self.WIDTH - self.LEFT - self.RIGHT)

    def text(self, x, y, text, anchor="middle"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>')

    def legend(self, names):
        for n, name in enumerate(names):
            y = self.TOP + n * 18
            x = self.WIDTH - self.RIGHT + 14
            self.parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[name]}"/>')
            self.text(x + 18, y + 10, name, "start")

    def write(self, path):
        path.write_text("\n".join([*self.parts, "</svg>"]) + "\n")


def nice_step(most):
    """About five lines, at round numbers."""
    rough = most / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= rough)


def bar_chart(path, title, groups):
    """Groups of bars: label, then system and value."""
    values = [value for _, group in groups for _, value in group]
    if not values:
        return
    picture = Picture(title, "us", max(values))
    names = [name for name in COLOURS if any(name == system for _, group in groups for system, _ in group)]
    for n, (label, group) in enumerate(groups):
        width = 0.86 / len(groups) / len(names)
        for system, value in group:
            x = picture.x((n + 0.07) / len(groups) + names.index(system) * width)
            y = picture.y(value)
            height = picture.y(0) - y
            picture.parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * (picture.x(1) - picture.x(0)) - 1:.1f}"'
                f' height="{height:.1f}" fill="{COLOURS[system]}"><title>{system}: {number(value)} us</title></rect>'
            )
        picture.text(picture.x((n + 0.5) / len(groups)), picture.HEIGHT - 18, label)
    picture.legend(names)
    picture.write(path)


def line_chart(path, title, series):
    """Readers against time, a line for each system."""
    points = [point for line in series.values() for point in line]
    if not points:
        return
    readers = sorted({reader for reader, _ in points})
    picture = Picture(title, "us", max(value for _, value in points))
    place = {reader: picture.x((n + 0.5) / len(readers)) for n, reader in enumerate(readers)}
    for system, line in series.items():
        drawn = " ".join(f"{place[reader]:.1f},{picture.y(value):.1f}" for reader, value in sorted(line))
        picture.parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{COLOURS[system]}" stroke-width="2.5"/>'
        )
    for reader in readers:
        picture.text(place[reader], picture.HEIGHT - 18, f"{reader} readers")
    picture.legend([name for name in COLOURS if name in series])
    picture.write(path)


def pictures(bench, out):
    results = bench["results"]

    def group(name):
        return [(system, median(runs)) for system, runs in results.get(name, {}).items() if system in COLOURS]

    for state, readers, what in [
        ("warm", 1, "source in memory, mount's caches cold, 1 reader"),
        ("cold", 1, "all caches cold, 1 reader"),
        ("cold", 8, "all caches cold, 8 readers"),
        ("hot", 1, "everything cached, 1 reader"),
    ]:
        groups = [
            (set_name, bars)
            for set_name in ["4k", "20k", "100k"]
            if (bars := group(f"read {set_name} {state} {readers}"))
        ]
        bar_chart(out / f"{state}-{readers}.svg", f"us a file: {what}", groups)
    for set_name in ["4k", "100k"]:
        series = {}
        for readers in [1, 2, 4, 8, 16]:
            for system, value in group(f"read {set_name} warm {readers}"):
                series.setdefault(system, []).append((readers, value))
        series = {system: line for system, line in series.items() if len(line) > 2}
        line_chart(out / f"readers-{set_name}.svg", f"us a file of {set_name}, all readers together: source in memory", series)


def write(out):
    bench = json.loads((out / "bench.json").read_text())
    text = tables(bench)
    (out / "bench.md").write_text(text)
    pictures(bench, out)
    print(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
