"""A lab in a temporary folder whose server, k6 and wrk are small scripts: the whole pipeline without real load.

What goes wrong is asked for by a word in the file `fault` beside the tools.
"""

import shutil
import stat
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
SERVER_TOML = """[server]
language = "Python"
framework = "http.server"
tier = "realistic"
implements = ["health", "count", "fallback", "experiments", "md5", "devices-insert", "stats"]

[run]
command = ["{python}", "server.py"]
"""
CAMPAIGN = """title = "fakes"
servers = ["fake"]
repeats = {repeats}

[[load]]
workload = "experiments"
vus = 2
iterations = 60
warmup_s = 0.1

[[load]]
workload = "wrk-matrix"
connections = [1, 4]
modes = ["keepalive", "close"]
duration_s = 0.3
warmup_s = 0.1
"""


def make(root: Path, repeats: int = 1) -> Path:
    """Make the lab under `root`; return the campaign's file."""
    server = root / "servers" / "fake"
    server.mkdir(parents=True)
    (server / "server.toml").write_text(SERVER_TOML.replace("{python}", sys.executable))
    shutil.copy(HERE / "fakes" / "server.py", server)
    (root / ".tools").mkdir()
    for name in ("k6", "wrk"):
        tool = root / ".tools" / name
        tool.write_text(f"#!{sys.executable}\n" + (HERE / "fakes" / f"{name}.py").read_text())
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    (root / ".tools" / "lib").mkdir()
    for module in (HERE / "k6_files.py", HERE / "fakes" / "pausing.py"):
        shutil.copy(module, root / ".tools" / "lib")
    shutil.copy(REPOSITORY / "servers" / "schema.sql", root / "servers")
    shutil.copytree(REPOSITORY / "notebooks", root / "notebooks")
    (root / "data").mkdir()
    shutil.copy(REPOSITORY / "data" / "published.csv", root / "data")
    campaign = root / "fakes.toml"
    campaign.write_text(CAMPAIGN.format(repeats=repeats))
    return campaign


def fault(root: Path, name: str) -> None:
    """Ask for a fault from now on; the scripts in `fakes/` say which there are. The empty name is none."""
    (root / ".tools" / "fault").write_text(name)
