"""`jackfield new`: writes a package with a small working plugin, its tests and its CI."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from jackfield.entrypoints.authoring.names import LICENSES, new_package
from jackfield.entrypoints.authoring.render import write
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.scan import discover


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "new",
        help="write the package of a new plugin",
        description="Write a package that installs, passes its tests and serves as it is. Change it from there.",
    )
    parser.add_argument("kind", help=f"what it plugs into: {', '.join(KINDS)}")
    parser.add_argument("name", help="the plugin's name, by which a run selects it")
    parser.add_argument("--directory", help="where to write it (default: the distribution's name, here)")
    parser.add_argument("--distribution", help="what pip installs (default: from name and kind)")
    parser.add_argument("--package", help="what Python imports (default: from the distribution's name)")
    parser.add_argument("--author", help="whose copyright it is (default: the authors of the distribution)")
    parser.add_argument("--license", default="MIT", help=f"one of {', '.join(LICENSES)} (default: MIT)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def run(namespace: argparse.Namespace) -> int:
    new = new_package(
        namespace.kind,
        namespace.name,
        catalogue=discover(),
        directory=namespace.directory,
        distribution=namespace.distribution,
        package=namespace.package,
        author=namespace.author,
        license_name=namespace.license,
    )
    for file in write(new):
        print(file)
    # pip takes a bare word for the name of a distribution.
    project = new.directory if new.directory.is_absolute() else f"./{new.directory}"
    print("\nNext:")
    print(f"  pip install -e {shlex.quote(f'{project}[test]')}")
    print(f"  pytest {shlex.quote(str(new.directory))}")
    print(f"  jackfield conformance {new.kind}.{new.name}")
    return 0
