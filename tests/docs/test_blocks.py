"""What is taken for a command in a page."""

from doc_blocks import blocks_of, commands_of, script_of, spans_of

PAGE = """
<!-- not run: needs a phone -->
```bash
fleetrank devices add --adb SERIAL \\
  --name x   # a comment
make check && FLEETRANK_ADB=/a fleetrank doctor > out.txt; kubectl exec POD -- fleetrank init w
```

```yaml title="sweeps/x.yaml"
name: x
```

```console
$ fleetrank query "SELECT 1
> AS one"
one
```

Say `fleetrank doctor`, or `fleetrank report show NAME [--format table|json]`.
"""


def test_a_block_knows_its_language_its_file_and_why_it_is_not_run() -> None:
    typed, saved, shown = blocks_of(PAGE)
    assert (typed.language, typed.title, typed.reason) == ("bash", None, "needs a phone")
    assert (saved.title, saved.text, saved.is_typed) == ("sweeps/x.yaml", "name: x\n", False)
    assert (shown.is_typed, shown.reason) == (True, None)


def test_commands_are_found_wherever_they_stand_in_a_line() -> None:
    typed, _saved, shown = blocks_of(PAGE)
    assert commands_of(typed, "fleetrank") == [
        ["devices", "add", "--adb", "SERIAL", "--name", "x"],
        ["doctor"],
        ["init", "w"],
    ]
    assert commands_of(typed, "make") == [["check"]]
    assert commands_of(shown, "fleetrank") == [["query", "SELECT 1\nAS one"]]


def test_what_a_terminal_answered_is_not_typed() -> None:
    assert script_of(blocks_of(PAGE)[2]) == 'fleetrank query "SELECT 1\nAS one"\n'


def test_a_form_inside_a_sentence_is_no_command() -> None:
    assert spans_of(PAGE) == [["doctor"]]
