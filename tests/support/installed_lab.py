"""The lab's wheel, installed in an environment of its own, for a user with an empty folder."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from built import ROOT


def built(kind: str, folder: Path) -> Path:
    """Build this checkout's wheel or sdist (`kind`) in `folder`; return the file's path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (path,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and the folders of a user: a home, and a folder to work in."""

    environment: Path
    folder: Path
    home: Path
    path: str
    """The user's environment variable PATH."""

    @classmethod
    def of(cls, wheel: Path, place: Path, programs: Sequence[Path] = ()) -> "Installed":
        """Install a wheel in a new environment below `place`.

        The new environment contains only the lab. All other packages are imported from the
        environment in which the tests run. `programs` are additional folders on the user's PATH.
        """
        environment = place / "environment"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120
        )
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = environment / "lib" / version / "site-packages"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
        # The tests' environment imports this checkout by a .pth file (editable mode). The new
        # environment cannot import the checkout, because Python ignores the .pth files of a folder
        # that is itself named in a .pth file.
        (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        (environment / "share").symlink_to(Path(sys.prefix) / "share")  # templates of nbconvert
        script = f"#!{environment}/bin/python\nfrom runner.cli import main\nmain()\n"
        (environment / "bin" / "bench").write_text(script)
        (environment / "bin" / "bench").chmod(0o755)
        made = [place / name for name in ("work", "home")]
        for folder in made:
            folder.mkdir()
        path = os.pathsep.join(map(str, (environment / "bin", *programs, "/usr/bin", "/bin")))
        return cls(environment, *made, path)

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def call(self, *command: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment in the user's folder.

        The program must end with exit code `code`.
        """
        env = {"HOME": str(self.home), "PATH": self.path, "COLUMNS": "200", "LANG": "C.UTF-8"}
        done = subprocess.run(
            [self.environment / "bin" / command[0], *command[1:]],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == code and "Traceback" not in done.stderr, done.stdout + done.stderr
        return done

    def bench(self, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        return self.call("bench", *arguments, code=code)

    def json(self, *arguments: str):
        """Run a command of `bench` with `--json`, and return the result that it prints."""
        return json.loads(self.bench(*arguments, "--json").stdout)
