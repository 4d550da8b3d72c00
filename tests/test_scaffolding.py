"""Set-up files, make targets, dependencies between packages, and the order of imports."""

import ast
import graphlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nppsim import _cache
from rl.config.command_line import resolve

from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements():
    extras = PROJECT["project"]["optional-dependencies"].values()
    for requirement in PROJECT["project"]["dependencies"] + [item for extra in extras for item in extra]:
        if not requirement.startswith("nppsim["):  # an extra that includes others
            yield normal(re.match(r"[A-Za-z0-9_.-]+", requirement)[0])


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
    assert "make test" in script.read_text()


def test_constraints_are_exact_and_name_every_requirement():
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^+ ]+", line) for line in CONSTRAINTS)
    pinned = {normal(line.split("==")[0]) for line in CONSTRAINTS}
    assert set(requirements()) <= pinned
    assert any(line.startswith("torch==") for line in CONSTRAINTS)


def test_the_basic_install_has_four_requirements():
    names = {normal(re.match(r"[A-Za-z0-9_.-]+", item)[0]) for item in PROJECT["project"]["dependencies"]}
    assert names == {"numpy", "numba", "gymnasium", "h5py"}


def test_packages_without_torch():
    code = "import sys, nppsim, hardware; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_dependencies_point_down_only():
    """scripts -> rl -> bc -> hardware -> nppsim, also for imports inside functions.

    ``python -m hardware`` counts as a script: it names the architectures, which are defined in ``rl``.
    """
    forbidden = {
        "nppsim": {"bc", "rl", "hardware", "scripts", "torch", "stable_baselines3"},
        "hardware": {"bc", "rl", "scripts", "stable_baselines3"},
        "bc": {"rl", "scripts"},
        "rl": {"scripts"},
    }
    imports = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
    for package, names in forbidden.items():
        for path in (ROOT / package).rglob("*.py"):
            if path == ROOT / "hardware" / "__main__.py":
                continue
            found = set(imports.findall(path.read_text())) & names
            assert not found, f"{path.relative_to(ROOT)} imports {', '.join(sorted(found))}"


# Sub-packages and single files of a package; each line may import from the lines above it.  ``observe/layout.py``, names and
# sizes of observations, has its own line, because phases and paths need it.
ORDER = {
    "nppsim": [
        {"_kernel", "actions", "errors", "outcomes"},
        {"_cache", "reading"},
        {"game_folder", "observe/layout"},
        {"_phases", "files", "progress", "settings", "signals", "workers"},
        {"cluster"},
        {"executor"},
        {"hdf5"},
        {"levels"},
        {"physics"},
        {"compile", "paths"},
        {"bank"},
        {"observe"},
        {"generate", "listing", "reward", "simulate", "spaces"},
        {"decision", "replays", "verify"},
        {"batch", "pictures", "report", "states"},
        {"_ahead", "env", "measure", "planner", "shadow"},
        {"vector_env"},
        {"studio"},
        {"__init__"},
        {"__main__"},
    ],
    "rl": [
        {"__init__"},
        {"events", "plugins", "seeds"},
        {"policy"},
        {"config"},
        {"evaluation"},
        {"curriculum", "distributed", "search", "upload"},
        {"ppo"},
        {"audit", "distillation"},
        {"doctor"},
        {"experiment"},
        {"studio"},
    ],
}


def unit(parts):
    """Return the sub-package or file that a module (its path within the package) belongs to."""
    return "observe/layout" if tuple(parts[:2]) == ("observe", "layout") else parts[0]


def imported(path, package):
    """Yield the units of the package that a file imports at its top level."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{name.name}" for name in node.names]
        else:
            continue
        for top, *parts in (module.split(".") for module in modules):
            if top == package:
                top_level = not parts or (
                    not (ROOT / top / parts[0]).is_dir() and not (ROOT / top / f"{parts[0]}.py").is_file()
                )
                yield "__init__" if top_level else unit(parts)


@pytest.mark.parametrize("package", ORDER)
def test_parts_of_a_package_import_only_earlier_ones(package):
    height = {name: number for number, names in enumerate(ORDER[package]) for name in names}
    for path in sorted((ROOT / package).rglob("*.py")):
        own = unit(path.relative_to(ROOT / package).with_suffix("").parts)
        for other in set(imported(path, package)) - {own}:
            assert height[other] < height[own], f"{path.relative_to(ROOT)} imports {other}, which comes after {own}"


def run_time_imports(node):
    """Yield the modules that code imports, also within functions, except for type checking."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (name.name for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{name.name}" for name in child.names)
        else:
            yield from run_time_imports(child)


def package_of(module):
    """Return the sub-package or single file that a module belongs to."""
    top, *parts = module.split(".")
    if top not in ORDER:
        return f"{top}/__main__" if parts[:1] == ["__main__"] else top
    inside = parts and ((ROOT / top / parts[0]).is_dir() or (ROOT / top / f"{parts[0]}.py").is_file())
    return f"{top}/{unit(parts)}" if inside else f"{top}/__init__"


def test_no_packages_import_each_other():
    tops = (*ORDER, "nppsim_agents", "bc", "hardware", "scripts")
    imports = {}
    for path in (path for top in tops for path in (ROOT / top).rglob("*.py")):
        own = package_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        found = run_time_imports(ast.parse(path.read_text(encoding="utf-8")))
        others = {package_of(module) for module in found if module.split(".")[0] in tops} - {own}
        imports.setdefault(own, set()).update(others)
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError


def test_every_package_is_installed():
    """A folder with Python files but without __init__.py would be left out of the wheel."""
    for package in ("nppsim", "bc", "rl", "hardware"):
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
            assert (folder / "__init__.py").exists(), f"{folder.relative_to(ROOT)} has no __init__.py"


def test_changes_of_generators_and_twins_do_not_recompile_kernels():
    package = Path(_cache.__file__).parent
    parts = {path.relative_to(package).parts[0] for path in _cache.kernel_sources()}
    assert {"physics", "observe", "decision.py", "measure"} <= parts
    assert not {"generate", "shadow", "pictures", "fuzz.py", "verify.py"} & parts


def test_make_train_runs_the_main_job_and_lets_users_change_it(monkeypatch):
    monkeypatch.chdir(ROOT)

    def dry_run(*arguments):
        command = ["make", "--no-print-directory", "-n", "-o", ".venv/installed-train", "train", *arguments]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        assert all(line.split()[:2] == [".venv/bin/python", "scripts/train_and_compare.py"] for line in lines)
        return [line.split()[2:] for line in lines]

    configs = [resolve(flags) for flags in dry_run()]
    assert [config.architectures for config in configs] == [("vision_free_foresight",), ("mlp_baseline",)]
    assert all(config.replay_data_dir == (Path("datasets/refined"),) for config in configs)
    assert dry_run("ARGS=--help") == [["--help"]]


def test_installation_is_repeated_only_when_its_files_change(tmp_path):
    """With a fake pip: ``make train`` installs less than ``make setup``, which includes all that training needs."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> calls\n')
    python.chmod(0o755)

    def installed(target):
        (tmp_path / "calls").write_text("")
        subprocess.run(["make", target], cwd=tmp_path, check=True, capture_output=True)
        return re.findall(r"-c constraints\.txt -e \.\[(\S+)\]", (tmp_path / "calls").read_text())

    def passes(seconds):  # else two files could have the same time
        for path in (
            *(tmp_path / ".venv").glob("installed*"),
            tmp_path / "pyproject.toml",
            tmp_path / "constraints.txt",
        ):
            before = path.stat().st_mtime - seconds
            os.utime(path, (before, before))

    assert [installed("train"), installed("train")] == [["train,video"], []]
    assert [installed("setup"), installed("setup"), installed("train")] == [["train,video,s3,studio,dev"], [], []]
    for name in ("pyproject.toml", "constraints.txt"):
        passes(60)
        (tmp_path / name).touch()
        assert [installed("setup"), installed("train")] == [["train,video,s3,studio,dev"], []]


def test_setup_without_a_suitable_python_names_what_to_install(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    for name in ("python3", "python3.11"):
        (tmp_path / name).write_text("#!/bin/sh\ncase $1 in --version) echo Python 3.9.2;; *) exit 1;; esac\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["make", "setup"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "error: Python 3.11 or newer is needed" in done.stderr
    assert "Python 3.9.2" in done.stderr
