"""Options that commands of `cwdp audit` share."""

from pathlib import Path
from typing import get_args

import click
import msgspec

from cwdp.errors import ConfigError
from cwdp.shared.audit.facts import Role

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
strict_option = click.option(
    "--strict", is_flag=True, help="Warnings fail too, and all that is unknown matters."
)
nagios_option = click.option("--nagios", is_flag=True, help="Print one line, and end as Nagios wants it.")
number_option = click.option(
    "--number", type=click.IntRange(min=1), help="Which audit; the last one unless given."
)
root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A recorded tree, instead of this host.",
)
role_option = click.option(
    "--role",
    "given",
    multiple=True,
    metavar="NIC=ROLE",
    help="Have a NIC be `back`, `front` or neither (`eth0=`); may come several times.",
)


def roles_of(given: tuple[str, ...]) -> dict[str, Role]:
    """The roles that are given.

    Raises:
        ConfigError: one is none.
    """
    pairs = [one.partition("=") for one in given]
    known = get_args(Role)
    for name, between, role in pairs:
        if not name or not between or role not in known:
            raise ConfigError(f"{name}{between}{role} is no role of a NIC", "such as --role eth0=front")
    return {name: msgspec.convert(role, type=Role) for name, _, role in pairs}
