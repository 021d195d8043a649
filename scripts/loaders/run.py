"""Runs the recipes of docs/loaders.md, and each one's check: run.py [--all] [--only NAME].

LOADERS_ORIGINALS is the folder that was packed, LOADERS_MOUNT and LOADERS_PICTURES are the two mounts. A recipe is
a block whose first line is `# recipe: NAME`, and `, --all` after it when what it needs is large.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checks

HERE = Path(__file__).resolve().parent
MANUAL = HERE.parent.parent / "docs" / "loaders.md"
BLOCK = re.compile(r"^```(python|sh)\n# recipe: ([a-z0-9-]+)(, --all)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Longer than the slowest takes on a busy machine; it only ends what hangs.
LIMIT = 300
# Appended to a recipe in Python; workers that import the program must not check.
CHECK = """
if __name__ == "__main__":
    import checks
    checks.{name}(dict(globals()))
"""


def on_this_mount(recipe):
    """The recipe with the manual's mountpoints replaced by those of this run."""
    recipe = recipe.replace("/mnt/data", os.environ["LOADERS_MOUNT"])
    return recipe.replace("/mnt/pictures", os.environ["LOADERS_PICTURES"])


def run(language, name, recipe, folder):
    """None when the recipe and its check agree, else what was said."""
    name = name.replace("-", "_")
    if not hasattr(checks, name):
        return f"scripts/loaders/checks.py has no check {name}"
    program = Path(folder, "recipe")
    text = on_this_mount(recipe)
    program.write_text(text + CHECK.format(name=name) if language == "python" else text)
    command = [sys.executable, program] if language == "python" else ["bash", "-euo", "pipefail", program]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        return f"status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    if language == "sh":
        os.chdir(folder)
        try:
            getattr(checks, name)(done.stdout)
        except AssertionError as error:
            return str(error)
    return None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--only")
    asked = arguments.parse_args()
    recipes = BLOCK.findall(MANUAL.read_text())
    marks = MANUAL.read_text().count("# recipe: ")
    assert len(recipes) == marks, f"{marks} recipes are marked, {len(recipes)} are blocks that can be run"
    failed = []
    ran = 0
    for language, name, large, recipe in recipes:
        if asked.only not in (None, name):
            continue
        if large and not asked.all:
            print(f"not run   {name} (--all)")
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=os.environ["LOADERS_WORK"]) as folder:
            problem = run(language, name, recipe, folder)
            os.chdir(HERE)
        took = time.monotonic() - started
        print(f"{'good' if problem is None else 'FAILED':9} {name} ({took:.1f} s)", flush=True)
        if problem is not None:
            print(problem, flush=True)
            failed.append(name)
        ran += 1
    print(f"{ran - len(failed)} of {ran} recipes give the content of the files that were packed")
    sys.exit(1 if failed or ran == 0 else 0)


if __name__ == "__main__":
    main()
