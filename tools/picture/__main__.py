"""`python -m tools.picture`: record a cut in a lab and draw docs/cut.svg of it; `--draw` draws what was recorded last."""

from pathlib import Path

import click

from tools.errors import exit_on_error
from tools.picture.document import load, store
from tools.picture.draw import draw
from tools.picture.record import record

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATA, PICTURE = "cut.json", "cut.svg"


@click.command()
@click.option("--draw", "only_draw", is_flag=True, help="Draw what was recorded last; needs no lab.")
@click.option("--seed", default=1, show_default=True, help="Draws the queue pairs and the link that is cut.")
@click.option(
    "--docs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=DOCS,
    help=f"The folder of {DATA} and {PICTURE}.  [default: docs]",
)
def main(*, only_draw: bool, seed: int, docs: Path) -> None:
    """Record a link that goes silent under load, with cwdp and by ECMP alone, and draw it (needs root)."""
    if not only_draw:
        store(record(seed), docs / DATA)
    (docs / PICTURE).write_text(draw(load(docs / DATA)))
    click.echo(f"{docs / PICTURE} is drawn from {docs / DATA}.")


if __name__ == "__main__":
    with exit_on_error():
        main(prog_name="python -m tools.picture")
