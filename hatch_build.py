"""Compiles what is worth it when tidelog is installed, if there is a C compiler.

Without a compiler, or with TIDELOG_PURE_PYTHON set, the package is Python alone and does the same,
slower. An editable installation gets the compiled file next to its source; it states the checksum
of that source, and one that has become stale is not used (`tidelog/broker/shortcuts.py`,
`tidelog/records/compiled.py`).
"""

import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    Path("src/tidelog/broker/_shortcuts.pyx"),
    Path("src/tidelog/records/_ids.pyx"),
)
"""Each includes the `.pxi` files beside it whose names begin like its own."""


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the extension module to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("TIDELOG_PURE_PYTHON"):
            return
        # Kept until the process ends: the wheel is put together after this returns.
        self._folder = tempfile.TemporaryDirectory(prefix="tidelog-build-")
        for source in SOURCES:
            try:
                compiled = _compile(Path(self.root) / source, Path(self._folder.name))
            except Exception as error:  # noqa: BLE001 - whatever a tool chain may come up with
                print(f"tidelog goes without {source.stem}: {error}", file=sys.stderr)  # noqa: T201
                continue
            if version == "editable":
                put_in_place(compiled, (Path(self.root) / source).parent)
                continue
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            inside = source.parent.relative_to("src") / compiled.name
            build_data["force_include"][str(compiled)] = str(inside)


def put_in_place(compiled: Path, folder: Path) -> None:
    """Copy `compiled` to `folder`, as a new file: a broker may be running what was there before."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".compiled-") as beside:
        copy = shutil.copy(compiled, beside)
        Path(copy).replace(folder / compiled.name)


def _compile(source: Path, folder: Path) -> Path:
    """The extension module that `source` makes."""
    folder = folder / source.stem
    folder.mkdir()
    # Not needed, and perhaps not there, where nothing is compiled.
    from Cython.Build import cythonize  # noqa: PLC0415
    from setuptools import Distribution, Extension  # noqa: PLC0415

    checksum = 0
    for path in sorted([source, *source.parent.glob(f"{source.stem}*.pxi")]):
        checksum = zlib.crc32(path.read_bytes(), checksum)
        shutil.copy(path, folder)
    copy = folder / source.name
    macros = [("SOURCE_CHECKSUM", f"{checksum}u")]
    extension = Extension(
        module_name(source), [str(copy)], define_macros=macros, extra_compile_args=["-O2", "-g0"]
    )
    distribution = Distribution({"ext_modules": cythonize([extension], quiet=True)})  # type: ignore[no-untyped-call]
    command = distribution.get_command_obj("build_ext")
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "temp")
    command.ensure_finalized()
    command.run()
    return Path(command.get_outputs()[0])


def module_name(source: Path) -> str:
    """What `source` is imported as."""
    parts = source.with_suffix("").parts
    # The last: the tree itself may be in a folder of that name.
    start = max(at for at, part in enumerate(parts) if part == "tidelog")
    return ".".join(parts[start:])
