"""Copy what the page and its tests take from npm, with licences, and record what was copied.

Usage: python -m tools.vendor

`package-lock.json` beside this file says which versions, with a SHA-512 of each package, and no address. What is copied
is what was published, but for two lines: an import by name becomes one by path, and pointers to source maps go. Needs npm.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "manager/page/static/vendor"
TESTS = ROOT / "tests/page/vendor"
SUMS = HERE / "sums.json"

FILES = {
    PAGE / "preact.mjs": "preact/dist/preact.mjs",
    PAGE / "hooks.mjs": "preact/hooks/dist/hooks.mjs",
    PAGE / "preact.LICENSE": "preact/LICENSE",
    PAGE / "htm.mjs": "htm/dist/htm.mjs",
    PAGE / "htm.LICENSE": "htm/LICENSE",
    PAGE / "uPlot.mjs": "uplot/dist/uPlot.esm.js",
    PAGE / "uPlot.css": "uplot/dist/uPlot.min.css",
    PAGE / "uPlot.LICENSE": "uplot/LICENSE",
    TESTS / "axe.min.js": "axe-core/axe.min.js",
    TESTS / "axe.LICENSE": "axe-core/LICENSE",
}


def rewritten(text: str) -> str:
    """Return a file as the page can load it without a bundler."""
    by_path = re.sub(r"""from\s*(["'])preact\1""", 'from "./preact.mjs"', text)
    return re.sub(r"^//# sourceMappingURL=.*\n?", "", by_path, flags=re.MULTILINE)


def copy_from(modules: Path) -> dict[str, str]:
    """Copy all files; the SHA-256 of each by its path from the root."""
    sums = {}
    for target, source in FILES.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        data = rewritten((modules / source).read_text()).encode()
        target.write_bytes(data)
        sums[str(target.relative_to(ROOT))] = hashlib.sha256(data).hexdigest()
    return sums


def main() -> int:
    """Fetch and copy; the exit status."""
    if shutil.which("npm") is None:
        sys.stderr.write("error: npm is not installed; apt-get install npm\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="cwdp-vendor-") as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(npm, cwd=folder, check=False)
        if done.returncode != 0:
            sys.stderr.write("error: npm failed, nothing was copied\n")
            return 1
        sums = copy_from(Path(folder) / "node_modules")
    SUMS.write_text(json.dumps(sums, indent=2) + "\n")
    print(f"{len(sums)} files copied")
    return 0


if __name__ == "__main__":
    sys.exit(main())
