"""Completion in real shells: what they offer is what argparse takes."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from fedpn.cli.main import _parser, main

# What is typed (the last word is being completed), and some of what must be offered.
TYPED = {
    "fedpn ru": {"run"},
    "fedpn data ": {"list", "get", "show", "check"},
    "fedpn data get digi": {"digits"},
    "fedpn run --algorithm fedb": {"fedbabu", "fedbn"},
    "fedpn run --device ": {"auto", "cpu", "cuda", "mps"},
    "fedpn report --o": {"--out"},
    "fedpn run --rounds 3 --algorithm apf": {"apfl"},
    "fedpn completion ": {"bash", "zsh", "fish"},
    "fedpn experiment to": {"toy"},
    "fedpn run --seed ": set(),  # nobody can guess a number
    "fedpn nonsense --algo": set(),
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The three scripts, as they are printed."""
    folder = tmp_path_factory.mktemp("shells")
    for shell in ("bash", "zsh", "fish"):
        with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w") as file:
            patch.setattr("sys.stdout", file)
            assert main(["completion", shell]) == 0
    return folder


def shell_of(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name}")
    return path


def bash_offers(scripts, typed):
    words = typed.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {scripts}/bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _fedpn; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ran = subprocess.run(
        [shell_of("bash"), "--norc", "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return set(ran.stdout.split())


def fish_offers(scripts, typed, home):
    code = f"source {scripts}/fish; complete -C '{typed}'"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    ran = subprocess.run(
        [shell_of("fish"), "--no-config", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env=environment,
    )
    assert ran.stderr == ""
    return {line.split("\t")[0] for line in ran.stdout.splitlines()}


@pytest.mark.parametrize("typed", TYPED)
def test_bash_offers_what_fits(scripts, typed):
    offered = bash_offers(scripts, typed)
    assert TYPED[typed] <= offered
    assert all(word.startswith(typed.rpartition(" ")[2]) for word in offered)
    if not TYPED[typed]:
        assert offered == set()


@pytest.mark.parametrize("typed", [typed for typed, found in TYPED.items() if found])
def test_fish_offers_the_same(scripts, typed, tmp_path):
    assert TYPED[typed] <= fish_offers(scripts, typed, tmp_path)


def commands(parser):
    """Every command with its options, straight from argparse."""
    options = {flag for action in parser._actions for flag in action.option_strings}
    yield parser.prog, {flag for flag in options if flag.startswith("--")}
    for action in parser._actions:
        if hasattr(action, "_choices_actions"):
            for child in action.choices.values():
                yield from commands(child)


def test_every_option_of_every_command_is_offered(scripts):
    """One shell for all of them: it is asked for `--` after each command."""
    known = dict(commands(_parser()))
    assert len(known) > 25
    lines = [f"source {scripts}/bash"]
    for place in known:
        words = place.split()
        lines.append(f"COMP_WORDS=({place} --); COMP_CWORD={len(words)}; _fedpn")
        lines.append(f'echo "{place}|${{COMPREPLY[*]}}"')
    ran = subprocess.run(
        [shell_of("bash"), "--norc", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
    )
    offered = dict(line.split("|") for line in ran.stdout.splitlines())
    assert {place: set(words.split()) for place, words in offered.items()} == known


def test_files_are_completed_where_they_are_wanted(scripts, tmp_path):
    """In a real prompt: a name of a file after `fedpn run`, and none after `--seed`."""
    (tmp_path / "mytable.csv").write_text("a")
    said = typed_into(
        [shell_of("bash"), "--norc", "-i"],
        [f"source {scripts}/bash", f"cd {tmp_path}"],
        "fedpn run --out myt\t",
        "mytable.csv",
    )
    assert "mytable.csv" in said


def test_zsh_completes_in_a_prompt(scripts, tmp_path):
    start = ["autoload -U compinit", "compinit -u -D", f"source {scripts}/zsh", f"cd {tmp_path}"]
    said = typed_into([shell_of("zsh"), "-f", "-i"], start, "fedpn comple\t", "completion")
    assert "completion" in said
    typed = "fedpn run --algorithm fedba\t"
    assert "fedbabu" in typed_into([shell_of("zsh"), "-f", "-i"], start, typed, "fedbabu")


def typed_into(shell, first, text, wanted):
    """What a shell shows when something is typed into its prompt, until that is there."""
    process, place = pty.fork()
    if process == 0:
        os.execve(shell[0], shell, {"PATH": os.environ["PATH"], "TERM": "xterm", "PS1": "> "})
    try:
        for line in [*first, "echo rea''dy"]:
            os.write(place, f"{line}\n".encode())
        read_until(place, "ready")
        os.write(place, text.encode())
        return read_until(place, wanted)
    finally:
        os.close(place)
        os.waitpid(process, 0)


def read_until(place, wanted, seconds=60):
    """What comes until it is there; bounded, for a shell that never says it."""
    said, end = "", time.monotonic() + seconds
    while wanted not in plain(said) and time.monotonic() < end:
        if select.select([place], [], [], 0.2)[0]:
            said += os.read(place, 4096).decode(errors="replace")
    return plain(said)


def plain(text):
    """Without what moves the cursor and paints."""
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>])|[\a\b\r]", "", text)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_sound(scripts, shell):
    subprocess.run([shell_of(shell), "-n", str(scripts / shell)], check=True, capture_output=True)


def test_an_unknown_shell_is_told_of(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
