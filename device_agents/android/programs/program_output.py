"""What a program on a phone has printed, and the words that it uses for figures and failures."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The texts with which one program reports failures; searched only if it failed.

    Attributes:
        unsupported: texts for missing flags, operators and delegates.
        bad_artifact: texts for a file that it cannot read.
        build: the build that a user can give instead.
    """

    unsupported: tuple[str, ...]
    bad_artifact: tuple[str, ...]
    build: str = "another build of the program"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """One call of a program.

    Attributes:
        argv: `argv[0]` is the program's path on the phone; no item is interpreted as shell code.
        result_file: path on the phone that the program may write. A missing file is not an error:
            the binary may not know the flag or may fail. `None` if no file is requested.
        log_tag: logcat tag to clear before and to read after the run, for programs that write
            there instead of to standard output; `None` if logcat is not used.
        warmup_runs: timed runs to exclude, for programs that have no warm-up.
        library: file name of a library beside the program that the call needs; `None` without one.
        library_folder: folder on the phone where the program finds libraries that were given with
            it; `None` if none were given.
        inputs: content of the file of inputs, and
        inputs_file: its path on the phone; `None` if the program makes its inputs itself.
        outputs_file: path on the phone of the outputs to compare; `None` if none are compared.
    """

    argv: tuple[str, ...]
    result_file: str | None = None
    log_tag: str | None = None
    warmup_runs: int = 0
    library: str | None = None
    library_folder: str | None = None
    inputs: bytes = field(default=b"", repr=False)
    inputs_file: str | None = None
    outputs_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutput:
    """The results of one call.

    Attributes:
        run: the call; the parser needs it to judge the output.
        exit_code: as the phone's shell reports it: 128 + n for signal n.
        result: bytes of the result file; `None` if no file was written.
        logcat: lines of the tag, as `logcat -d -s TAG` prints them.
        outputs: bytes of the file of outputs; not part of the stored log.
    """

    run: ProgramCall
    exit_code: int
    stdout: str
    stderr: str
    result: bytes | None = None
    logcat: str | None = None
    outputs: bytes | None = field(default=None, repr=False)
