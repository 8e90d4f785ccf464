"""Which models a command asks for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from experiments.images.settings import Settings
from experiments.images.variants import VARIANTS

__all__ = ["wanted"]


def wanted(args: argparse.Namespace) -> dict[str, tuple[Settings, bool]]:
    """The models to train by name, and whether their panels are drawn.

    They are those of ``--models``, or of the lines of ``--list-file``; what ``--set`` says is for
    all of them, and a line may say otherwise.
    """
    known = VARIANTS[args.dataset]
    if args.list_file is not None and args.models is not None:
        raise ValueError("--models must not be given with --list-file, which names models itself")
    if not args.test and args.pictures == "all":
        raise ValueError("--pictures all needs test images, not --validation-only")
    clusters = [] if args.clusters is None else [f"clusters={args.clusters}"]
    for_all = _changes("--set", [*args.set, *clusters])
    if args.list_file is not None:
        lines = _lines(args.list_file)
    else:
        names = list(known) if args.models == "all" else (args.models or "paper").split(",")
        lines = [("--models", [name]) for name in names]
    found: dict[str, tuple[Settings, bool]] = {}
    for where, (name, *more) in lines:
        if name not in known:
            raise ValueError(f"{where} must be of {', '.join(known)}, or all, got {name!r}")
        variant = known[name]
        changes = for_all | _changes(where, more)
        settings = variant.settings.quick() if args.quick else variant.settings
        settings = settings.with_text(changes)
        if not args.test and not settings.valid_rows:
            raise ValueError(f"{name}: valid_rows must be at least 1 with --validation-only, got 0")
        # What is changed is a model of its own.
        changed = " ".join([name, *(f"{key}={text}" for key, text in changes.items())])
        if changed in found:
            raise ValueError(f"{where} must name different models, got {changed!r} twice")
        pictures = {"some": variant.pictures or args.quick, "all": True, "none": False}
        found[changed] = (settings, args.test and pictures[args.pictures])
    return found


def _lines(file: Path) -> list[tuple[str, list[str]]]:
    """The words of each line that has some; a # begins a remark."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--list-file {file} cannot be read: {error}") from None
    words = [line.partition("#")[0].split() for line in text.splitlines()]
    lines = [(f"--list-file {file}, line {n}", line) for n, line in enumerate(words, 1) if line]
    if not lines:
        raise ValueError(f"--list-file {file} must have a model on a line, got none")
    return lines


def _changes(where: str, assignments: Iterable[str]) -> dict[str, str]:
    """Settings and their texts."""
    pairs = [text.partition("=") for text in assignments]
    bad = [name for name, sign, _ in pairs if not sign]
    if bad:
        raise ValueError(f"{where} must be given NAME=VALUE, got {bad[0]!r}")
    return {name: text for name, _, text in pairs}
