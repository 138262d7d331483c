"""Builds the native library of this package: with the wheel (as hatchling's hook), or in place by `python build_native.py`.

Every file of csrc/kernels/ is compiled once for each instruction-set level of the processor family, never for the machine that
builds, so that the library runs on any of the family and chooses when it is loaded. Where there is no C++ compiler, or it
fails, the package is built without the library, with the reason in its place, which the plugin tells when it is asked.
"""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "csrc"
PACKAGE = ROOT / "jackfield_ops_cpu"
LIBRARY = PACKAGE / "libjackfield_cpu.so"
REASON = PACKAGE / "not_built.txt"

_AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
_AVX512 = [*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"]
_VNNI = [*_AVX512, "-mavx512vnni"]
X86_LEVELS: dict[str, list[str]] = {
    "scalar": [],
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_vnni": _VNNI,
    "avx512_bf16": [*_VNNI, "-mavx512bf16"],
}
"""Level -> compiler flags, in the order of `Level` in csrc/dispatch.h."""

COMMON = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-Wall",
    "-Wextra",
]


class NotBuilt(Exception):
    """Why there is no library."""


def levels() -> dict[str, list[str]]:
    """Those of the processor family: of others than x86-64 the portable level alone."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return X86_LEVELS
    return {"scalar": []}


def find_compiler() -> str:
    """$CXX, or the first of the usual names. Raises NotBuilt."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in names:
        if (found := shutil.which(name)) is not None:
            return found
    raise NotBuilt(f"no C++ compiler was found ({', '.join(names)})")


def build(target: Path = LIBRARY) -> None:
    """Compile and link into `target`. Raises NotBuilt."""
    compiler = find_compiler()
    known = levels()
    digest = runpy.run_path(str(PACKAGE / "source_digest.py"))["source_digest"](ROOT)
    with tempfile.TemporaryDirectory() as scratch:
        jobs: list[tuple[list[str], Path]] = []
        for file in sorted(SOURCES.glob("*.cpp")):
            flags = [f'-DJF_DIGEST="{digest}"', *(["-DJF_X86"] if "avx2" in known else [])]
            jobs.append(([*COMMON, *flags, str(file)], Path(scratch) / f"{file.stem}.o"))
        for file in sorted((SOURCES / "kernels").glob("*.cpp")):
            for number, (level, flags) in enumerate(known.items()):
                named = [f"-DJF_LEVEL={number}", f"-DJF_NAMESPACE=level_{level}"]
                jobs.append(([*COMMON, *flags, *named, str(file)], Path(scratch) / f"{file.stem}.{level}.o"))
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            commands = [[compiler, *words, f"-I{SOURCES}", "-c", "-o", str(made)] for words, made in jobs]
            for result in threads.map(_run, commands):
                _check(result)
        part = target.with_suffix(f".{os.getpid()}.part")
        # The C++ library is linked in, because an older system may have an older one.
        static = ["-static-libgcc", "-static-libstdc++"] if sys.platform == "linux" else []
        _check(_run([compiler, "-shared", "-pthread", *static, "-o", str(part), *(str(made) for _, made in jobs)]))
        part.replace(target)  # a process that has the old one mapped keeps it


def build_or_say_why(target: Path = LIBRARY, reason: Path = REASON) -> str | None:
    """None if the library was built, else why not, which `reason` holds too."""
    try:
        build(target)
    except NotBuilt as error:
        target.unlink(missing_ok=True)
        reason.write_text(f"{error}\n")
        return str(error)
    reason.unlink(missing_ok=True)
    return None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _check(result: subprocess.CompletedProcess[str]) -> None:
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no message")
        raise NotBuilt(f"the C++ compiler {result.args[0]} failed: {first}")


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # built in place
    pass
else:

    class NativeLibrary(BuildHookInterface):  # type: ignore[type-arg]
        """Hatchling calls it for a wheel and for an editable install; for both the library lies in the package."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            why = build_or_say_why()
            if why is not None:
                self.app.display_warning(f"jackfield-ops-cpu is built without its native library: {why}")
                build_data["artifacts"].append(f"/{REASON.relative_to(ROOT)}")
                return
            build_data["artifacts"].append(f"/{LIBRARY.relative_to(ROOT)}")
            build_data["pure_python"] = False
            tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{tag}"  # it is called through a C interface, so any Python will do


if __name__ == "__main__":
    said = build_or_say_why()
    sys.exit(f"not built: {said}" if said else 0)
