"""After a red run of the tests: the few that failed once more, alone and twice, on a machine that does nothing else.

Real processes and servers share a few cores in the tests, and some of them now and then miss a deadline that has nothing to do with what
they show. A test that fails alone is red. More than a few are red without a second look: then it is not the machine. What was red once is
said at the end, for whoever reads it to look into (docs/decisions/0033).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FEW = 3
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= FEW:
        print(f"{len(failed)} tests failed: they are not run again")
        return 1
    for _ in range(2):
        if subprocess.run([sys.executable, "-m", "pytest", *failed], check=False).returncode:
            return 1
    print("\nRed in the run of all tests and green alone, twice:", *failed, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
