"""Set-up files, make targets, dependencies between packages, and the order of imports."""

import ast
import functools
import graphlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nppsim
from nppsim._numba import cache
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


def test_constraints_pin_every_requirement():
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^+ ]+", line) for line in CONSTRAINTS)
    pinned = {normal(line.split("==")[0]) for line in CONSTRAINTS}
    assert set(requirements()) <= pinned
    assert any(line.startswith("torch==") for line in CONSTRAINTS)


def test_citation_has_the_version_and_licence_of_the_package():
    cited = dict(re.findall(r'^([\w-]+): *"?([^"\n]+)', (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["title"], cited["license"]) == (project["name"], project["license"])
    assert cited["version"] == nppsim.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", cited["date-released"]) and "repository-code" not in cited


def test_basic_install_has_four_requirements():
    names = {normal(re.match(r"[A-Za-z0-9_.-]+", item)[0]) for item in PROJECT["project"]["dependencies"]}
    assert names == {"numpy", "numba", "gymnasium", "h5py"}


def test_nppsim_and_hardware_import_without_torch():
    code = "import sys, nppsim, hardware; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_package_dependencies_point_down():
    """scripts -> rl -> bc -> hardware -> nppsim, also for imports inside functions."""
    forbidden = {
        "nppsim": {"bc", "rl", "hardware", "scripts", "torch", "stable_baselines3"},
        "hardware": {"bc", "rl", "scripts", "stable_baselines3"},
        "bc": {"rl", "scripts"},
        "rl": {"scripts"},
    }
    imports = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
    for package, names in forbidden.items():
        for path in (ROOT / package).rglob("*.py"):
            found = set(imports.findall(path.read_text())) & names
            assert not found, f"{path.relative_to(ROOT)} imports {', '.join(sorted(found))}"


PACKAGES = ("nppsim", "nppsim_agents", "bc", "rl", "hardware", "scripts")


def python_files():
    return [path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py"))]


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path, modules):
    """Return the modules of this project that a file imports, within functions and for type checking too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= names & modules or {node.module}
    return (found & modules) - {module_of(path)}


@functools.cache
def imports_of_modules():
    """Module -> modules of this project that it imports."""
    modules = {module_of(path) for path in python_files()}
    return {module_of(path): imports(path, modules) for path in python_files()}


def test_modules_have_no_import_cycles():
    graphlib.TopologicalSorter(imports_of_modules()).prepare()  # raises CycleError


# Sub-packages of nppsim whose files belong to different levels of the architecture, so that the files are units of their own.
DIVIDED = {"nppsim._numba", "nppsim.observe"}


def unit(module):
    """Return the sub-package or single file that a module belongs to."""
    package = ".".join(module.split(".")[:2])
    return module if package in DIVIDED else package


def test_packages_have_no_import_cycles():
    edges = {}
    for module, imported in imports_of_modules().items():
        edges.setdefault(unit(module), set()).update({unit(other) for other in imported} - {unit(module)})
    graphlib.TopologicalSorter(edges).prepare()


def test_nppsim_has_few_top_level_modules():
    assert len(list((ROOT / "nppsim").glob("*.py"))) <= 14


def test_all_packages_installed():
    """A folder with Python files but without __init__.py would be left out of the wheel."""
    for package in ("nppsim", "bc", "rl", "hardware"):
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
            assert (folder / "__init__.py").exists(), f"{folder.relative_to(ROOT)} has no __init__.py"


def test_generators_and_shadow_do_not_change_kernel_digest():
    package = Path(cache.__file__).parents[1]
    parts = {path.relative_to(package).parts[0] for path in cache.kernel_sources()}
    assert {"physics", "observe", "decision.py", "measure"} <= parts
    assert not {"generate", "shadow", "pictures", "fuzz.py", "verify.py"} & parts


def test_make_train_runs_main_job_with_arguments(monkeypatch):
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


def test_installation_repeats_only_when_files_change(tmp_path):
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


def test_setup_without_suitable_python_names_packages(tmp_path):
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
