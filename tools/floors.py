"""The lowest versions that setup.cfg allows, as pip takes them: `numpy==1.24 scipy==1.12 ...`."""

from __future__ import annotations

import configparser
from pathlib import Path

SETUP = Path(__file__).resolve().parents[1] / "setup.cfg"


def floors() -> list[str]:
    """One exact requirement for each of install_requires."""
    parser = configparser.ConfigParser()
    parser.read(SETUP)
    asked = parser["options"]["install_requires"].split()
    pinned = [one.replace(">=", "==") for one in asked]
    if not all(one.count("==") == 1 for one in pinned):
        raise SystemExit(f"install_requires must have a floor each (name>=version); got {asked}")
    return pinned


if __name__ == "__main__":
    print(*floors())
