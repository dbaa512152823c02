"""Completion scripts for bash, zsh and fish, from what can be typed."""

import shlex
from collections.abc import Callable, Iterator

from fedpn.cli.grammar import Command, Slot


def bash(root: Command) -> str:
    """A script for bash; what it knows is in it, so that it asks nobody."""
    places = "|".join(_quoted(command.place) for command in root.all())
    return f"""# fedpn in bash: source this, or keep it as
# ~/.local/share/bash-completion/completions/fedpn
_fedpn() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} place=fedpn i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$place ${{COMP_WORDS[i]}}" in
      {places}) place="$place ${{COMP_WORDS[i]}}" ;;
    esac
  done
  local words="" files=no
  case "$place|$previous" in
{_cases(root)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $files = yes ]]; then compopt -o default 2>/dev/null; fi
}}
complete -F _fedpn fedpn
"""


def _cases(root: Command) -> str:
    """What follows which option of which command; else a command's own words."""
    lines = []
    for command in root.all():
        for option in command.options:
            if option.slot is not None:
                pattern = "|".join(_quoted(f"{command.place}|{flag}") for flag in option.flags)
                lines.append(f"    {pattern}) {_set(option.slot)} ;;")
    for command in root.all():
        words = [*(child.place.rpartition(" ")[2] for child in command.children)]
        words += [*command.slot.names, *(flag for o in command.options for flag in o.flags)]
        slot = Slot(tuple(words), command.slot.files)
        lines.append(f"    {_quoted(f'{command.place}|')}*) {_set(slot)} ;;")
    return "\n".join(lines)


def _set(slot: Slot) -> str:
    return f"words={_quoted(' '.join(slot.names))} files={'yes' if slot.files else 'no'}"


def zsh(root: Command) -> str:
    """A script for zsh."""
    places = "|".join(_quoted(command.place) for command in root.all())
    return f"""#compdef fedpn
# fedpn in zsh: source this after compinit, or keep it as _fedpn in a directory of $fpath
_fedpn() {{
  local place=fedpn files=no i
  local previous=$words[CURRENT-1]
  local -a found
  for ((i = 2; i < CURRENT; i++)); do
    case "$place $words[i]" in
      ({places}) place="$place $words[i]" ;;
    esac
  done
  case "$place|$previous" in
{"".join(_zsh_cases(root)).rstrip()}
  esac
  (( $#found )) && _describe fedpn found
  [[ $files = yes ]] && _files
  return 0
}}
if [[ $funcstack[1] = _fedpn ]]; then _fedpn "$@"; else compdef _fedpn fedpn; fi
"""


def _zsh_cases(root: Command) -> Iterator[str]:
    """The same as for bash, each word with what it is for."""
    for command in root.all():
        for option in command.options:
            if option.slot is not None:
                pattern = "|".join(_quoted(f"{command.place}|{flag}") for flag in option.flags)
                names = [(name, "") for name in option.slot.names]
                yield f"    ({pattern}) {_found(names, option.slot)} ;;\n"
    for command in root.all():
        told = [(child.place.rpartition(" ")[2], child.text) for child in command.children]
        told += [(name, "") for name in command.slot.names]
        told += [(flag, option.text) for option in command.options for flag in option.flags]
        yield f"    ({_quoted(f'{command.place}|')}*) {_found(told, command.slot)} ;;\n"


def _found(told: list[tuple[str, str]], slot: Slot) -> str:
    words = " ".join(
        _quoted(word.replace(":", "\\:") + (f":{text}" if text else "")) for word, text in told
    )
    return f"found=({words}) files={'yes' if slot.files else 'no'}"


def fish(root: Command) -> str:
    """A script for fish."""
    places = " ".join(_fish_quoted(command.place) for command in root.all())
    return f"""# fedpn in fish: source this, or keep it as ~/.config/fish/completions/fedpn.fish
function __fedpn_at
    set -l place fedpn
    for word in (commandline -opc)[2..-1]
        if contains -- "$place $word" {places}
            set place "$place $word"
        end
    end
    test "$place" = "$argv[1]"
end
complete -c fedpn -f
{"".join(_fish_lines(root)).rstrip()}
"""


def _fish_lines(root: Command) -> Iterator[str]:
    for command in root.all():
        here = _fish_quoted(f'__fedpn_at "{command.place}"')
        begin = f"complete -c fedpn -n {here}"
        for child in command.children:
            name = child.place.rpartition(" ")[2]
            yield f"{begin} -a {name} -d {_fish_quoted(child.text)}\n"
        if command.slot.names:
            yield f"{begin} -a {_fish_quoted(' '.join(command.slot.names))}\n"
        if command.slot.files:
            yield f"{begin} -F\n"
        for option in command.options:
            flags = " ".join(_fish_flag(flag) for flag in option.flags)
            yield f"{begin} {flags}{_fish_value(option.slot)} -d {_fish_quoted(option.text)}\n"


def _fish_flag(flag: str) -> str:
    return f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"


def _fish_value(slot: Slot | None) -> str:
    """What follows an option: nothing, files, names, or what nobody can guess."""
    if slot is None:
        return ""
    names = f" -a {_fish_quoted(' '.join(slot.names))}" if slot.names else ""
    return f" -r -F{names}" if slot.files else f" -x{names}"


def _quoted(text: str) -> str:
    """One word for bash and zsh."""
    return shlex.quote(text)


def _fish_quoted(text: str) -> str:
    r"""
    >>> print(_fish_quoted("a client's \\"))
    'a client\'s \\'
    """
    inside = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{inside}'"


SHELLS: dict[str, Callable[[Command], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
