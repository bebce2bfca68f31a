"""Write the dashboards that are kept in the repository.

Usage: python -m tools.dashboards
"""

from pathlib import Path

from tools.dashboards.boards import rendered

FOLDER = Path(__file__).parents[2] / "manager/monitoring/dashboards"


def main() -> None:
    """Write each as JSON."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in rendered().items():
        path = FOLDER / f"{name}.json"
        path.write_text(text)
        print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


main()
