#!/usr/bin/env python3
"""Writes the licences of everything that is linked into the programs, for packages to carry.

usage: scripts/third-party.py OUTPUT

For each crate in the normal tree of Cargo.lock (which includes those of macros, but not those of build scripts and tests):
name, version, licence, where it comes from, and the texts that it ships. Equal texts stand once. A crate without a
licence is an error.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)

# For crates that ship no text of their own.
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction, including
without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE
USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked():
    """The packages of the normal tree, without our own."""
    host = re.search(r"^host: (.*)$", output("rustc", "-vV"), re.MULTILINE).group(1)
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host))
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    seen, left = {root}, [root]
    while left:
        for dependency in nodes[left.pop()]["deps"]:
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if normal and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                left.append(dependency["pkg"])
    packages = [package for package in metadata["packages"] if package["id"] in seen - {root}]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The texts of a package's licences, each with the name of its file."""
    folder = Path(package["manifest_path"]).parent
    names = {path for path in folder.iterdir() if path.is_file() and TEXTS.match(path.name)}
    if package["license_file"]:
        names.add(folder / package["license_file"])
    # A crate may build in a library of another language, with its own texts.
    names |= {path for path in folder.glob("*/*") if path.is_file() and TEXTS.match(path.name) and path.suffix in ("", ".txt", ".md")}
    found = [(str(path.relative_to(folder)), path.read_text(encoding="utf-8", errors="replace")) for path in sorted(names)]
    if found:
        return found
    licence = package["license"] or ""
    if "Apache-2.0" in licence:
        return [("Apache-2.0", (ROOT / "LICENSE").read_text(encoding="utf-8"))]
    if "MIT" in licence:
        authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
        return [("MIT", f"Copyright (c) {authors}\n\n{MIT}")]
    raise SystemExit(f"error: no text of the licence of {package['name']} {package['version']}: {licence or 'none'}")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__.split("\n\n")[1])
    packages = linked()
    numbers, order, lines = {}, [], []
    for package in packages:
        of_package = []
        for name, text in texts(package):
            # Texts that differ in white space alone are the same.
            key = " ".join(text.split())
            if key not in numbers:
                numbers[key] = len(numbers) + 1
                order.append(text)
            of_package.append(f"{name} [{numbers[key]}]")
        source = package["repository"] or package["homepage"] or f"https://crates.io/crates/{package['name']}"
        licence = package["license"] or "see its text"
        lines += [f"{package['name']} {package['version']}", f"    licence: {licence}", f"    source: {source}"]
        lines += [f"    texts: {', '.join(of_package)}", ""]
    head = [
        f"The programs of this package contain parts of {len(packages)} other works.",
        "Each is named here with its licence; the texts of the licences follow, by number.",
        "",
    ]
    for number, text in enumerate(order, 1):
        lines += ["=" * 100, f"[{number}]", "", text.strip("\n"), ""]
    Path(sys.argv[1]).write_text("\n".join(head + lines), encoding="utf-8")
    print(f"{sys.argv[1]}: {len(packages)} works, {len(order)} texts")


if __name__ == "__main__":
    main()
