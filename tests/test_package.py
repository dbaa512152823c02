"""The wheel, as people get it: what is in it, and which kernels serve without a compiler."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fedpn
from fedpn.nn.kernels import compiled, native, recipe

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
# What the kernels answer, forwards and backwards, to the last bit; and which kernels they were.
BITS = """
import hashlib, torch, fedpn
from fedpn.nn import kernels
torch.set_num_threads(2)
rng = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.randn(shape, generator=rng, requires_grad=True)
told = []
def tell(outputs, inputs):
    total = sum((y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum() for y in outputs)
    told.extend([*outputs, *torch.autograd.grad(total, inputs)])
for channels, filters, k in ((1, 6, 5), (6, 16, 5), (3, 20, 3)):
    inputs = draw(7, channels, 14, 14), draw(filters, channels, k, k), draw(filters)
    tell([kernels.conv_relu_pool(*inputs)], inputs)
z, flow = draw(37, 16), kernels.Radial(draw(5, 9, 16), draw(5, 9), draw(5, 9))
tell(kernels.label_log_prob(z, flow, torch.arange(37) % 5), [z, *flow])
print(fedpn.__file__)
print(kernels.status())
print(hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in told)).hexdigest())
"""

needs_a_build = pytest.mark.skipif(
    compiled._compiler() is None or not recipe.is_x86() or sys.platform != "linux",
    reason="kernels are built ahead with a compiler, on Linux and x86-64",
)


def versions():
    with (ROOT / "pyproject.toml").open("rb") as file:
        yield tomllib.load(file)["project"]["version"]
    with (ROOT / "src/fedpn/flower/thin/pyproject.toml").open("rb") as file:
        yield tomllib.load(file)["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    yield from re.findall(r"^version: (\S+)$", citation, re.M)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield re.findall(r"^## (\d\S+)", changelog, re.M)[0]


def test_all_tell_the_same_version():
    assert list(versions()) == [fedpn.__version__] * 4


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """What a clone has of what a build needs."""
    place = tmp_path_factory.mktemp("package") / "tree"
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", "_commit.txt", "*.so")
    shutil.copytree(ROOT / "src", place / "src", ignore=left)
    for part in PARTS:
        shutil.copy(ROOT / part, place)
    shutil.copy(ROOT / ".gitignore", place)
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    run("git", "init", "-q", cwd=place)
    run("git", "add", ".", cwd=place)
    run("git", *name, "commit", "-qm", "all", cwd=place)
    return place


@pytest.fixture(scope="module")
def wheel(tree):
    command = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", "../dist")
    run(*command, ".", cwd=tree, env=os.environ | {"FEDPN_PREBUILT": "yes", "PYTHONPATH": ""})
    (made,) = (tree.parent / "dist").iterdir()
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel as pip lays it down."""
    place = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(place)
    return place


@pytest.fixture
def without(installed, tmp_path):
    """The same as the wheel for all machines, which has no libraries."""
    left = shutil.ignore_patterns("*.so")
    return Path(shutil.copytree(installed, tmp_path / "pure", ignore=left))


def bits(place, compiler=False, **environment):
    """Which kernels served, and what came out; without a compiler unless it is wanted."""
    env = {k: v for k, v in os.environ.items() if k not in ("CC", "FEDPN_KERNELS")}
    if not compiler:
        env["PATH"] = str(place)
    told = run(sys.executable, "-c", BITS, env=env | {"PYTHONPATH": str(place)} | environment)
    module, status, digest = told.splitlines()
    assert Path(module).is_relative_to(place)
    return status, digest


@needs_a_build
@pytest.mark.slow
def test_the_wheel_has_all_that_is_in_the_tree_and_its_commit(tree, wheel, installed):
    tracked = run("git", "ls-files", "src", cwd=tree).splitlines()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.removeprefix("src/") for name in tracked} <= names
    assert {f"fedpn/nn/kernels/{recipe.prebuilt(unit)}" for unit in recipe.UNITS} <= names
    commit = (installed / "fedpn" / "_commit.txt").read_text()
    assert commit == run("git", "rev-parse", "HEAD", cwd=tree)
    assert wheel.name == f"fedpn-{fedpn.__version__}-py3-none-linux_x86_64.whl"


@needs_a_build
@pytest.mark.slow
def test_without_a_compiler_the_wheels_kernels_serve_to_the_same_bits(installed, without):
    status, brought = bits(installed)
    assert status.startswith("native: C that came with the package, ")
    status, built = bits(without, compiler=True, FEDPN_KERNELS="build")
    assert status.startswith("native: C built by ")
    assert brought == built


@needs_a_build
@pytest.mark.slow
def test_a_cpu_without_wide_vectors_has_a_form_of_its_own(installed, monkeypatch):
    monkeypatch.setattr(native, "HERE", installed / "fedpn/nn/kernels")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    library, story = native.build.__wrapped__()
    assert library and story.endswith(recipe.prebuilt("DEFAULT"))


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)


def test_without_both_the_eager_forms_serve_and_say_so(no_compiler, tmp_path, monkeypatch):
    monkeypatch.setattr(native, "HERE", tmp_path)
    library, story = native.build.__wrapped__()
    assert library is None
    assert story.endswith("no library for this machine; FEDPN_KERNELS=build compiles one, once")
    monkeypatch.setenv("FEDPN_KERNELS", "build")
    library, story = native.build.__wrapped__()
    assert library is None
    assert re.match("the package brought no library for this machine, and no C compiler", story)


def test_nothing_is_compiled_on_first_use_unless_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "HERE", tmp_path)
    monkeypatch.delenv("FEDPN_KERNELS", raising=False)
    monkeypatch.setattr(compiled, "build", lambda unit: native.Build("one", "built"))
    assert native.build.__wrapped__().library is None
    monkeypatch.setenv("FEDPN_KERNELS", "build")
    assert native.build.__wrapped__().library == "one"


def test_a_library_of_other_sources_is_not_found(tmp_path, monkeypatch):
    for source in recipe.SOURCES:
        shutil.copy(recipe.HERE / source, tmp_path)
    monkeypatch.setattr(recipe, "HERE", tmp_path)
    before = recipe.prebuilt("DEFAULT")
    with (tmp_path / "radial.c").open("a") as file:
        file.write("// changed\n")
    assert recipe.prebuilt("DEFAULT") != before


def test_a_library_that_cannot_be_loaded_is_passed_over(no_compiler, tmp_path, monkeypatch):
    monkeypatch.setattr(native, "HERE", tmp_path)
    monkeypatch.setenv("FEDPN_KERNELS", "build")
    for unit in recipe.UNITS:
        (tmp_path / recipe.prebuilt(unit)).write_text("words")
    library, story = native.build.__wrapped__()
    assert library is None
    assert re.match(r".*\.so cannot be loaded \(.*, and no C compiler", story)
    monkeypatch.setattr(compiled, "build", lambda unit: native.Build("one", "built"))
    assert native.build.__wrapped__().library == "one"


@needs_a_build
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump here")
@pytest.mark.parametrize(
    ("unit", "has", "lacks"),
    [
        ("DEFAULT", "%xmm", r"%[yz]mm|\tv[a-z]"),
        ("AVX2", r"vfmadd\w+ .*%ymm", "%zmm|%k[1-7]"),
        ("AVX512", "%zmm", "no such thing"),
    ],
)
def test_a_library_has_the_instructions_of_its_unit_alone(unit, has, lacks, installed):
    library = installed / "fedpn/nn/kernels" / recipe.prebuilt(unit)
    text = run("objdump", "-d", "--no-show-raw-insn", str(library))
    assert re.search(has, text) and not re.search(lacks, text)
