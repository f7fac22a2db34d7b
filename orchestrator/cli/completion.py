"""Completion scripts for bash, zsh and fish, made from the commands of the program.

A script holds every command and option, and lists names of files in the workspace by itself: the
shell answers at once, and no Python starts.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

Words = Mapping[str, list[str]]
"""A command such as `models show`, or the empty text for the program, to what can follow it."""


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_NAMES = {
    "cards/*.toml": ("models show", "models export", "models verify", "run", "ab", "--model"),
    "devices/*.yaml": (
        "devices show", "devices check", "devices remove",
        "--device", "--devices", "--source", "--target",
    ),
    "sweeps/*.yaml": ("sweep plan", "sweep run"),
    "results/sweeps/*.json": (
        "sweep status", "sweep resume", "report compare", "results delete", "results verify",
        "results compact", "results export", "results reparse", "results audit", "results tag",
        "results exclude", "--sweep",
    ),
}  # fmt: skip
"""Files of a workspace to the commands and options that take their names without the suffix."""


def words_of(commands: Mapping[str, Any]) -> Words:
    """What can follow each command, read off the commands of Typer."""
    found = {"": [*commands, "--workspace", "--verbose", "--debug", "--version", "--help"]}
    for name, command in commands.items():
        found |= dict(_words(name, command))
    return found


def _words(path: str, command: Any) -> Iterator[tuple[str, list[str]]]:
    subcommands: Mapping[str, Any] = getattr(command, "commands", {})
    options = sorted({name for one in command.params for name in one.opts if name[:2] == "--"})
    yield path, [*subcommands, *options, "--help"]
    for name, one in subcommands.items():
        yield from _words(f"{path} {name}", one)


def script(shell: Shell, words: Words, models: list[str]) -> str:
    """The text that a shell reads to complete `fleetrank`; `models` are the built-in ones."""
    if shell is Shell.FISH:
        return _fish(words, models)
    start = "#compdef fleetrank\nautoload -U +X bashcompinit && bashcompinit\n"
    return (start if shell is Shell.ZSH else "") + _bash(words, models)


def _extra(files: str, models: list[str]) -> str:
    return " ".join({"cards/*.toml": models, "devices/*.yaml": ["local-cpu"]}.get(files, []))


def _bash(words: Words, models: list[str]) -> str:
    known = " | ".join(f"'{path}'" for path in words if path)
    cases = "\n".join(f"    '{path}') words='{' '.join(some)}' ;;" for path, some in words.items())
    names = "\n".join(
        f"    {' | '.join(map(repr, takers))}) files='{files}'; extra='{_extra(files, models)}' ;;"
        for files, takers in _NAMES.items()
    )
    return f"""_fleetrank() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' words='' files='' extra='' root=$PWD i next file
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${{COMP_WORDS[i]}} == --workspace ]] && {{ root=${{COMP_WORDS[++i]}}; continue; }}
    next="$command ${{COMP_WORDS[i]}}"
    case "${{next# }}" in {known}) command="${{next# }}" ;; esac
  done
  while [[ -n $root && ! -e $root/cluster.yaml ]]; do
    case $root in */*) root=${{root%/*}} ;; *) root='' ;; esac
  done
  case "$command" in
{cases}
  esac
  case "$previous" in --*) command=$previous ;; esac
  case "$command" in
{names}
  esac
  if [[ -n $root && -n $files ]]; then
    for file in "$root"/$files; do
      [[ -e $file ]] || continue
      file=${{file##*/}}
      # compgen evaluates its words: a name with other letters could be a command.
      case ${{file%.*}} in *[!A-Za-z0-9._-]*) continue ;; esac
      extra="$extra ${{file%.*}}"
    done
  fi
  case "$previous:$files" in --*:?*) words='' ;; esac
  COMPREPLY=( $(compgen -W "$words $extra" -- "$current") )
}}
complete -o default -F _fleetrank fleetrank
"""


def _fish(words: Words, models: list[str]) -> str:
    known = " ".join(f"'{path}'" for path in words if path)
    cases = "\n".join(
        f"        case '{path}'\n            string split ' ' -- '{' '.join(some)}'"
        for path, some in words.items()
    )
    names = "\n".join(
        f"        case {' '.join(map(repr, takers))}\n"
        f"            set extra {_extra(files, models)}\n"
        # Without a match a wildcard is an error, except in `set`.
        f'            test -n "$root"; and set files $root/{files}'
        for files, takers in _NAMES.items()
    )
    return f"""function __fleetrank_complete
    set -l words (commandline -opc)
    set -l root $PWD
    set -l command ''
    set -l extra
    set -l files
    set -l i 2
    while test $i -le (count $words)
        if test "$words[$i]" = --workspace
            set i (math $i + 1)
            test $i -le (count $words); and set root "$words[$i]"
        else
            set -l next (string trim -- "$command $words[$i]")
            contains -- "$next" {known}; and set command "$next"
        end
        set i (math $i + 1)
    end
    while test -n "$root"; and not test -e "$root/cluster.yaml"
        set root (string match -r '(.*)/[^/]*' -- "$root")[2]
    end
    set -l taker "$command"
    string match -q -- '--*' "$words[-1]"; and set taker "$words[-1]"
    switch "$taker"
{names}
    end
    for file in $files
        set -l name (string replace -r '^.*/' '' -- "$file" | string replace -r '\\.[^.]*$' '')
        string match -qr '^[A-Za-z0-9._-]+$' -- "$name"; and echo "$name"
    end
    string join \\n -- $extra
    test "$taker" != "$command"; and set -q files[1]; and return
    switch "$command"
{cases}
    end
end
complete -c fleetrank -a '(__fleetrank_complete)'
"""
