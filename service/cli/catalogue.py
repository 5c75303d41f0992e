"""`shardwright catalog`: what is known, each figure with its source."""
import re
from typing import Annotated, Any

import typer

from service.cli.faults import output
from service.cli.tables import plain_table
from service.cli.words import billions, printable

app = typer.Typer(help="What the catalogue holds: GPUs, links, models.", no_args_is_help=True)
Pattern = Annotated[str, typer.Argument(help="Show only names that contain this text, in any case.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("gpus")
def gpus(name: Pattern = "", as_json: Json = False) -> None:
    """GPUs and other accelerators, with the source of their figures."""
    from solver.catalog.loader import devices

    rows = [d for d in devices() if _matches(name, d.name)]
    if as_json:
        return _print_json(rows)
    table = plain_table("name", "memory GiB", "bf16 TFLOP/s", "memory GB/s", "link", "link GB/s", "network GB/s", "source")
    for d in rows:
        table.add_row(d.name, f"{d.memory_gib:g}", f"{d.bf16_tflops:g}" if d.bf16_tflops else "none", f"{d.memory_bandwidth_gb_s:g}", d.link_type,
                      f"{d.link_gb_s:g}", f"{d.network_gb_s:g}", printable(d.source))
    output().print(table)


@app.command("links")
def links(name: Pattern = "", as_json: Json = False) -> None:
    """Classes of links, with raw and usually achieved bandwidth."""
    from solver.catalog.loader import links as all_links

    rows = [link for link in all_links() if _matches(name, link.name)]
    if as_json:
        return _print_json(rows)
    table = plain_table("name", "class", "GB/s raw", "GB/s achieved", "latency us", "source")
    for link in rows:
        table.add_row(link.name, link.link_class, f"{link.raw_gb_s:g}", f"{link.achieved_gb_s:g}", f"{link.latency_us:g}", printable(link.source))
    output().print(table)


@app.command("models")
def models(name: Pattern = "", as_json: Json = False) -> None:
    """Model presets, with the parameter counts that their publishers state."""
    from solver.catalog.loader import presets

    rows = [p for p in presets() if _matches(name, p.name)]
    if as_json:
        return _print_json(rows)
    table = plain_table("name", "parameters", "layers", "hidden", "heads", "KV heads", "vocabulary", "experts", "source")
    for p in rows:
        a = p.architecture
        table.add_row(p.name, billions(p.published_parameters), str(a.num_layers), str(a.hidden_size), str(a.num_attention_heads), str(a.kv_heads),
                      str(a.vocab_size), str(a.moe.num_experts) if a.moe else "none", printable(p.source))
    output().print(table)


def _matches(text: str, name: str) -> bool:
    return re.sub(r"[^a-z0-9]", "", text.lower()) in re.sub(r"[^a-z0-9]", "", name.lower())


def _print_json(rows: list[Any]) -> None:
    from service.jobs.render import json_bytes

    typer.echo(json_bytes(rows).decode())
