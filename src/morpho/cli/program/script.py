"""A script of the user's inside a command (`morpho profile`, `morpho tune`): run as Python runs it, with its errors."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from morpho.base.errors import ArgumentError, fail


def check(script: str, command: str) -> None:
    """Before anything is recorded: that there is a file, and that it is Python.

    >>> check("none.py", "profile")
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [profile] there is no script none.py.
    """
    path = Path(script)
    if not path.is_file():
        raise fail(ArgumentError, command, f"there is no script {script}", line="")
    try:
        compile(path.read_bytes(), script, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise fail(ArgumentError, command, f"{script}{where} is not Python: {error.msg}", line="") from None
    except ValueError as error:  # null bytes, in Python 3.11.3 and before
        raise fail(ArgumentError, command, f"{script} is not Python: {error}", line="") from None


def run(words: Sequence[str], held: dict[str, Any] | None = None) -> int:
    """Run a script with its arguments; its exit status. What it raises is printed as Python does, without the frames of
    who ran it. `held` gets what its names mean at its end."""
    before, path = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = list(words), str(Path(words[0]).absolute().parent)
    try:
        names = runpy.run_path(words[0], run_name="__main__")
        (held if held is not None else {}).update(names)
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # sys.exit("what is wrong")
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        traceback.print_exception(_of_script(error, words[0]))
        return 1
    finally:
        sys.argv, sys.path[0] = before, path


def split_options(words: Sequence[str], names: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Words without the options among them, and these with their values; a command whose words may be a script's takes
    none behind the first word, and asks here where they are files.

    >>> split_options(["a.json", "--out", "b.html", "--out=c.svg"], ["--out"])
    (['a.json'], [('--out', 'b.html'), ('--out', 'c.svg')])
    """
    rest: list[str] = []
    found: list[tuple[str, str]] = []
    left = iter(words)
    for word in left:
        name, mark, value = word.partition("=")
        if name not in names:
            rest.append(word)
        elif mark:
            found.append((name, value))
        elif (following := next(left, None)) is not None:
            found.append((name, following))
        else:
            raise typer.BadParameter(f"{name} wants a value")
    return rest, found


def misplaced(words: Sequence[str], options: Sequence[str], command: str) -> str:
    """A remark where a script was given an option of the command's name, which may not be what was meant.

    >>> misplaced(["train.py", "--out", "r.html"], ["--out"], "profile")
    'note: --out stands behind train.py and went to it; for morpho profile, write it before the script'
    """
    found = [word.partition("=")[0] for word in words[1:] if word.partition("=")[0] in options]
    return (f"note: {found[0]} stands behind {words[0]} and went to it; for morpho {command}, write it before the "
            "script" if found else "")


def _of_script(error: Exception, script: str) -> Exception:
    """The error with the frames of the script and below it: not those of who ran it."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    return error.with_traceback(found) if found is not None else error
