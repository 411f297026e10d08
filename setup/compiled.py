"""Import every module of the lab, so that Python compiles it and stores the bytecode.

Python then also stores the bytecode of all modules that the lab imports. This program also imports
the modules that only a notebook's kernel needs. To compile all modules of .venv would take four
times the CPU time, although most of them are never imported.
"""

import importlib
import pkgutil

import runner

OF_A_KERNEL = (
    "IPython.core.completer",
    "ipykernel.kernelapp",
    "matplotlib.backends.backend_svg",
    "matplotlib_inline.backend_inline",
    "nbconvert",
    "papermill.execute",
)
"""Modules that only notebooks' kernels import, or that the lab imports only inside functions."""


def main() -> None:
    """Import all modules of the lab, and those of OF_A_KERNEL."""
    for module in pkgutil.walk_packages(runner.__path__, "runner."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for name in OF_A_KERNEL:
        importlib.import_module(name)


if __name__ == "__main__":
    main()
