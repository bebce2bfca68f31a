"""`python dying_loader.py NETNS_FD load|upgrade OBJECT MODULE.FUNCTION CALL before|after`: killed on the way.

The named function, in a module of `cwdp.dataplane`, kills this process with SIGKILL before or after its CALL-th call.
"""

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from machine import set_namespace

from cwdp.dataplane.loading import loader


def main() -> None:
    netns_fd, action, obj, step, call, moment = sys.argv[1:]
    module_name, _, name = step.rpartition(".")
    module = importlib.import_module(f"cwdp.dataplane.{module_name}")
    function, calls = getattr(module, name), iter(range(1, 1000))

    def deadly(*arguments: Any, **options: Any) -> Any:
        last = next(calls) == int(call)
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, name, deadly)
    set_namespace(int(netns_fd))
    loader.OBJECT = Path(obj)
    getattr(loader, action)("roce0")


main()
