"""Distributions that requirements install, and bytes of their downloads.

``python tests/quality/install_size.py REQUIREMENT ...`` asks pip what it would install into an
empty environment of this Python, and the places of the files how long they are. Nothing is
installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path


def main() -> None:
    """Print a line per distribution, the largest first, and their sum."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-"]
    command += ["--ignore-installed", *sys.argv[1:]]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    sizes = {
        "{name} {version}".format_map(entry["metadata"]): size(entry["download_info"]["url"])
        for entry in report["install"]
    }
    for name, length in sorted(sizes.items(), key=lambda pair: -pair[1]):
        print(f"{length / 1e6:9.1f} MB  {name}")
    print(f"{sum(sizes.values()) / 1e6:9.1f} MB  in {len(sizes)} distributions")


def size(url: str) -> int:
    """Bytes of a file; of a folder that pip builds, 0."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        return path.stat().st_size if path.is_file() else 0
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(answer.headers["Content-Length"])


if __name__ == "__main__":
    main()
