"""What the documents name is there: commands, options, files, links, exporters."""
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from service.cli.commands import app
from solver.exporters.registry import EXPORTERS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
COMMANDS = typer.main.get_command(app)


def _shell_lines(document: Path) -> Iterator[str]:
    for block in re.findall(r"^```bash\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def _program_lines() -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        found += [(document.name, line) for line in _shell_lines(document) if "shardwright " in line and line.split()[0] == "shardwright"]
    return found


def _options(command: object) -> set[str]:
    names = (name for p in getattr(command, "params", ()) for name in (*getattr(p, "opts", ()), *getattr(p, "secondary_opts", ())))
    return {name for name in names if name.startswith("--")}


@pytest.mark.parametrize(("document", "line"), _program_lines())
def test_commands_in_documents_are_understood(document: str, line: str) -> None:
    words = shlex.split(line.split(" > ")[0])[1:]
    command, context = COMMANDS, None
    while hasattr(command, "commands"):
        context = command.make_context(command.name, [words[0]], parent=context, resilient_parsing=True)
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, words, parent=context)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_files_and_targets_in_documents_are_there(document: Path) -> None:
    text = document.read_text()
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        assert "://" in link or (document.parent / link).exists(), link
    for name in re.findall(r"examples/[\w.-]+\.json", text):
        assert (ROOT / name).exists(), name
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`(?:\w+=\S+ )*make ([a-z-]+)", text):
        assert target in targets, target


def test_every_command_and_option_is_documented() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == ["plan", "estimate", "replan", "calibrate", "export", "serve", "catalog", "version"]
    assert set(sections) == set(COMMANDS.commands)          # type: ignore[attr-defined]
    for name, section in sections.items():
        command = COMMANDS.commands[name]                  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {"": command})
        known = set().union(*(_options(c) for c in inner.values())) - {"--help"}
        assert set(re.findall(r"--[a-z][a-z-]*", section)) - {"--json"} == known - {"--json"}, name
        assert ("--json" in section) == ("--json" in known) or name == "export"
        assert all(f"catalog {c}" in section for c in inner if c)


def test_every_exporter_is_documented_with_its_version_and_files() -> None:
    text = (ROOT / "docs" / "exports.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert set(rows) == set(EXPORTERS)
    assert EXPORTERS["megatron"].written_for in rows["megatron"]
    golden = {p.name for p in (ROOT / "tests/solver/exporters/golden/experts").iterdir()}
    assert set(re.findall(r"`([\w.]+)`", rows["megatron"])) == golden


def test_documents_are_reachable_from_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked
