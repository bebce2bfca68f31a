"""`python -m tools.rdma [BEGINNING]`: run scenarios in the virtual machine and print what happened as JSON.

All are run, or those whose names begin so.
"""

import json
import sys

from cwdp.errors import CwdpError
from tools.rdma import machine


def main() -> int:
    """Run the machine; the exit status."""
    try:
        print(json.dumps(machine.run(beginning="".join(sys.argv[1:])), indent=1))
    except CwdpError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
