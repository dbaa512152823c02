"""The library of the kernels is this user's own, whole, and leaves nothing behind."""

import os
import re
import stat
import subprocess
import sys
import tempfile

import pytest

from fedpn.nn.kernels import compiled

# As the package has it, but without PyTorch, so that a process of a test starts at once.
ALONE = """
import subprocess, sys, types
for name in ("fedpn", "fedpn.nn", "fedpn.nn.kernels"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
from fedpn.nn.kernels import compiled
compiled.FLAGS = ("-O0", *compiled.FLAGS[1:])
library, story = compiled.build("AVX2")
print("native:" if library else "eager:", story)
"""
CHILD = (
    ALONE + "sys.stdout.flush(); subprocess.run([sys.executable, '-c', sys.argv[2], *sys.argv[1:]])"
)

pytestmark = pytest.mark.skipif(compiled._compiler() is None, reason="no C compiler here")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of a user who has none yet; tmp is another."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(compiled, "FLAGS", ("-O0", *compiled.FLAGS[1:]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(compiled.HANDED, "")
    monkeypatch.delenv("FEDPN_KERNELS", raising=False)
    return tmp_path / "cache" / "fedpn" / "kernels"


@pytest.fixture
def builds(monkeypatch):
    """Where something was compiled, in turn."""
    made, build = [], compiled._compile
    monkeypatch.setattr(compiled, "_compile", lambda c, path: (made.append(path), build(c, path)))
    return made


def build():
    """As a process that starts does it."""
    return compiled.build("AVX2")


def made(cache):
    (path,) = cache.glob("*.so")
    return path


def test_every_function_that_is_called_is_looked_up():
    called = {
        name
        for source in compiled.HERE.glob("*.py")
        for name in re.findall(r"library\(\)\.(\w+)", source.read_text())
    }
    assert called == set(compiled.SYMBOLS)


def test_the_folder_is_closed_and_the_second_start_only_reads(cache, builds, monkeypatch):
    assert build().library
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in cache.iterdir()} == {0}
    assert sorted(path.suffix for path in cache.iterdir()) == [".sha256", ".so"]
    monkeypatch.setattr(compiled, "_try", lambda path: pytest.fail("tried again"))
    assert build().story.endswith(".so")
    assert len(builds) == 1


def test_an_open_folder_of_ones_own_is_closed(cache):
    cache.mkdir(parents=True, mode=0o755)
    assert build().library
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


DAMAGE = {
    "cut": (lambda so: so.write_bytes(so.read_bytes()[:5000]), "differs from its checksum"),
    "flipped": (
        lambda so: so.write_bytes(so.read_bytes().replace(b"fedpn_radial", b"fedpn_radios")),
        "differs from its checksum",
    ),
    "empty": (lambda so: so.write_bytes(b""), "differs from its checksum"),
    "words": (lambda so: so.write_text("words"), "differs from its checksum"),
    "without checksum": (
        lambda so: so.with_suffix(".sha256").unlink(),
        "has a checksum that is not there",
    ),
    "damaged checksum": (
        lambda so: so.with_suffix(".sha256").write_bytes(b"\xff\xfe"),
        "differs from its checksum",
    ),
    "open": (lambda so: so.chmod(0o777), r"can be written by others \(mode 0777\)"),
    "open checksum": (
        lambda so: so.with_suffix(".sha256").chmod(0o666),
        r"has a checksum that can be written by others \(mode 0666\)",
    ),
    "a link": (
        lambda so: (so.rename(so.with_name("other")), so.symlink_to(so.with_name("other"))),
        "is no plain file",
    ),
    "a pipe": (lambda so: (so.unlink(), os.mkfifo(so)), "is no plain file"),
    "a pipe for a checksum": (
        lambda so: (so.with_suffix(".sha256").unlink(), os.mkfifo(so.with_suffix(".sha256"))),
        "has a checksum that is no plain file",
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_library_is_noticed_and_built_anew(damage, words, cache, builds):
    build()
    # A fresh copy: this process has the old one open, and would fall with it.
    path = made(cache)
    path.write_bytes((path.read_bytes(), path.unlink())[0])
    damage(path)
    again = build()
    assert again.library
    assert re.search(f"built anew, as the one there {words}", again.story)
    assert len(builds) == 2
    assert build().story.endswith(".so")  # and now it is whole
    assert len(builds) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_library_of_another_user_is_replaced(cache, builds):
    build()
    os.chown(made(cache), 12345, -1)
    assert "as the one there belongs to the user 12345" in build().story
    assert made(cache).stat().st_uid == os.geteuid()
    assert len(builds) == 2


def _foreign(cache):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    cache.mkdir(parents=True)
    os.chown(cache, 12345, -1)


def _opened(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)


def _unmakeable(cache):
    cache.parent.parent.mkdir()
    cache.parent.write_text("a file where the folder should be")


def _filled(cache):
    build()
    path = made(cache)
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_foreign, "belongs to the user 12345; remove it"),
        (_opened, r"can be written by others \(mode 0777\); remove it"),
        (_unmakeable, r"cannot be made \("),
        (_filled, r"takes no library \("),
    ],
)
def test_a_cache_that_is_not_ones_own_is_left_alone(harm, words, cache, builds):
    harm(cache)
    before = sorted(cache.rglob("*"))
    builds.clear()
    found = build()
    assert found.library
    assert re.search(f"for this process and its children alone, as {cache} {words}", found.story)
    assert sorted(cache.rglob("*")) == before
    private = builds[-1]
    assert private.is_relative_to(tempfile.gettempdir())
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700
    assert os.environ[compiled.HANDED] == str(private)
    again = build()  # as a child does
    assert f"{private}, which a parent process built" in again.story
    assert builds[-1] == private


def test_what_is_handed_on_is_checked_too(cache, builds, tmp_path):
    _unmakeable(cache)
    build()
    handed = builds[-1]
    handed.write_bytes((handed.read_bytes(), handed.unlink())[0][:5000])
    assert build().library
    assert len(builds) == 2
    assert builds[1].parent != handed.parent


def run(script, **environment):
    command = [sys.executable, "-c", script, str(compiled.HERE.parents[2]), ALONE]
    return subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    )


def test_a_process_tree_without_a_cache_builds_once_and_leaves_nothing(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    places = {"XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "tmp")}
    left = tmp_path / "tmp" / f"{compiled.PREFIX}{2**22 + 1}-x"  # beyond any process's number
    left.mkdir(mode=0o700)
    process = run(CHILD, **places, HOME=str(tmp_path / "file"), FEDPN_KERNELS_BUILT="")
    parent, child = process.communicate(timeout=300)[0].splitlines()
    assert parent.startswith("native: ") and "for this process and its children alone" in parent
    assert child.startswith("native: ") and "which a parent process built" in child
    assert list((tmp_path / "tmp").iterdir()) == []


def test_two_builders_at_once_both_end_with_a_good_library(cache, tmp_path):
    processes = [run(ALONE) for _ in range(2)]
    stories = [process.communicate(timeout=300)[0] for process in processes]
    assert all(story.startswith("native: ") for story in stories), stories
    assert not compiled._fault(made(cache))
    assert sorted(path.suffix for path in cache.iterdir()) == [".sha256", ".so"]


def test_a_compiler_that_builds_rubbish_harms_nobody(cache, tmp_path, monkeypatch):
    """It says that all is well, and writes a library that ends whoever loads it."""
    fake = tmp_path / "cc"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo fake 1.0 && exit\n'
        'while [ "$1" != -o ]; do shift; done\n'
        "echo '#include <signal.h>\nvoid __attribute__((constructor)) f(void) "
        '{ raise(SIGSEGV); }\' | cc -shared -fPIC -x c - -o "$2"\n'
    )
    fake.chmod(0o700)
    monkeypatch.setenv("CC", str(fake))
    found = build()
    assert found.library is None
    assert re.search("the library cannot be loaded: .* ended with -11", found.story)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("script", ["exit 1", "echo words; exit 0"])
def test_a_compiler_that_does_not_work_means_the_eager_forms(script, cache, tmp_path, monkeypatch):
    fake = tmp_path / "cc"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o700)
    monkeypatch.setenv("CC", str(fake))
    assert build().library is None
    assert "built no library" in build().story
    assert not cache.exists() or list(cache.iterdir()) == []
