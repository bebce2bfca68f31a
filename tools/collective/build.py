"""The program, compiled: by `make collective`, and by tests with sanitizers."""

from pathlib import Path

from tools.nccl.build import CALLER, PLUGIN
from tools.shim.build import FLAGS, compile_c, sources
from tools.shim.build import HERE as SHIM

HERE = Path(__file__).parent
PROGRAM = HERE.parents[1] / "build/collective/cwdp-collective"
"""What `make collective` builds."""


def build(folder: Path, sanitizer: str | None = None) -> Path:
    """Compile it into a folder, with `-fsanitize=SANITIZER` if one is given; its path.

    Raises:
        LabError: there is no compiler, or it refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / PROGRAM.name
    verbs = SHIM / "program"
    include = [argument for path in (SHIM / "fake", verbs, PLUGIN, CALLER) for argument in ("-I", str(path))]
    checked = [f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer"] if sanitizer else []
    compile_c(
        made,
        *FLAGS,
        "-DAS_NCCL",
        *include,
        *checked,
        *sources(HERE / "program"),
        *sources(CALLER),
        *sources(verbs, "lib"),
        "-ldl",
    )
    return made
