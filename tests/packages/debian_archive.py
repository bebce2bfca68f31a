"""A Debian package, unpacked into a folder."""

import subprocess
from configparser import ConfigParser, SectionProxy
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Archive:
    """Its files, and what dpkg is told of it."""

    deb: Path
    files: Path
    control: Path

    @classmethod
    def unpacked(cls, deb: Path, into: Path) -> "Archive":
        files, control = into / "files", into / "control"
        subprocess.run(("dpkg-deb", "-x", deb, files), check=True)
        subprocess.run(("dpkg-deb", "-e", deb, control), check=True)
        return cls(deb, files, control)

    def field(self, name: str) -> str:
        shown = subprocess.run(("dpkg-deb", "-f", self.deb, name), capture_output=True, text=True, check=True)
        return shown.stdout.strip()

    @property
    def conffiles(self) -> list[str]:
        path = self.control / "conffiles"
        return path.read_text().split() if path.exists() else []

    @property
    def environment(self) -> Path:
        """The private libraries."""
        return self.files / "usr/lib/cwdp/lib/python3.11/site-packages"

    def unit(self, name: str) -> dict[str, SectionProxy]:
        parser = ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read(self.files / "lib/systemd/system" / name)
        return {section: parser[section] for section in parser.sections()}
