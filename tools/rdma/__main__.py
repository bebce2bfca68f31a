"""`python -m tools.rdma [BEGINNING]`: run scenarios in the virtual machine and print what happened as JSON.

All are run, or those whose names begin so.
"""

import json
import sys

from tools.errors import exit_on_error
from tools.rdma import machine


def main() -> None:
    """Run the machine."""
    print(json.dumps(machine.run(beginning="".join(sys.argv[1:])), indent=1))


if __name__ == "__main__":
    with exit_on_error():
        main()
