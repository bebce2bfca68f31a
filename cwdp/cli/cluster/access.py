"""`cwdp fleet token`, `certificate`, `access`, `revoke-access`, `authority`: who may ask a manager by TCP, and for what."""

import time
from pathlib import Path
from typing import Any

import click
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from rich.table import Table
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.credentials import times_line
from cwdp.cli.reading import manager_option, reading, show, why_option
from cwdp.cli.times import shown_time
from cwdp.errors import ConfigError
from cwdp.shared.identity.credential import write_secret
from manager.access.grants import DEFAULT_DAYS

ROLES = ("metrics", "viewer", "operator", "administrator")

_role_option = click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="What it lets do: read /metrics only; read; steer as well; let in and out as well.",
)
_days_option = click.option(
    "--days", type=float, default=DEFAULT_DAYS, show_default=True, help="How long it is good."
)


@click.command()
@click.argument("name")
@_role_option
@_days_option
@why_option
@manager_option
def token(name: str, role: str, days: float, *, why: str | None, url: str | None) -> None:
    """Print a token by which NAME, a person or a program, may ask managers by TCP. It is shown this once."""
    answer = ManagerClient(url).put("/v1/access", {"name": name, "role": role, "days": days}, why=why)
    click.echo(answer["token"])


@click.command()
@click.argument("name")
@_role_option
@_days_option
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="The file to write; NAME.pem unless given."
)
@why_option
@manager_option
def certificate(
    name: str, role: str, days: float, out: Path | None, *, why: str | None, url: str | None
) -> None:
    """Make a key here, and write it with a certificate by which NAME may ask managers by TCP."""
    path = out or Path(f"{name}.pem")
    if path.exists():
        raise ConfigError(f"{path} is there already", "give another file with --out, or remove it")
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    wanted = {"name": name, "role": role, "days": days, "public_key": public.decode()}
    answer = ManagerClient(url).put("/v1/access", wanted, why=why)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    times = times_line(name, role, answer["issued_s"], answer["expires_s"])
    write_secret(path, times + secret.decode() + answer["certificate"])
    click.echo(f"wrote {path}: the key and the certificate of {name}, {role} for {days:g} days")


@click.command()
@reading
def access(url: str | None, as_json: bool, watch: float | None) -> None:
    """List who has a token or a certificate."""
    client = ManagerClient(url)
    show(lambda: client.get("/v1/access"), _table, as_json=as_json, watch_s=watch)


@click.command("revoke-access")
@click.argument("name")
@why_option
@manager_option
def revoke_access(name: str, why: str | None, url: str | None) -> None:
    """Let the token or certificate of NAME count no more, at every manager."""
    answer = ManagerClient(url).delete("/v1/access", {"name": name}, why=why)
    click.echo(f"the {answer['kind']} of {name} counts no more")


@click.command()
@manager_option
def authority(url: str | None) -> None:
    """Print the certificate by which managers are known: what browsers, Prometheus and commands elsewhere must trust."""
    click.echo(ManagerClient(url).get("/v1/authority")["certificate"], nl=False)


COMMANDS = (token, certificate, access, revoke_access, authority)


def _table(answer: Any) -> Table:
    table = tables.new_table("name", "role", "kind", "ends", "given by")
    for row in answer["access"]:
        is_over = row["expires_s"] <= time.time()
        ends = Text(f"{shown_time(row['expires_s'])}{' (over)' if is_over else ''}", "red" if is_over else "")
        table.add_row(row["name"], row["role"], row["kind"], ends, row["by"])
    return table
