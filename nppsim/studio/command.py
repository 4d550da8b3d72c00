"""Commands ``python -m nppsim studio`` and ``watch``: serve the studio until Ctrl-C and open it in the browser."""

import argparse
import errno
import os
import signal
import socket
import sys
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nppsim.errors import ConfigError, import_optional
from nppsim.io.files import check_output_folder
from nppsim.settings import Parser, Setting
from nppsim.studio.agents import CLOCKS
from nppsim.studio.security import LOOPBACK, Access, is_local

if TYPE_CHECKING:
    from starlette.applications import Starlette

PORT = 8765
EVERY_ADDRESS = ("0.0.0.0", "::")  # hosts that mean all addresses of this machine
_PACKAGES = ("starlette", "uvicorn")


def flags(parser: Parser) -> None:
    """Add the flags of the command ``studio``."""
    _common_flags(parser)
    parser.add_argument("--run", metavar="EXPERIMENT", help="folder of an experiment whose training is displayed live")
    trusted = "import the plug-ins that the experiment of --run names, which runs their code"
    parser.add_argument("--trust-plugins", action="store_true", help=trusted)
    parser.add_argument(
        "--export",
        metavar="DIR",
        help="write the page with its levels and replays as files for a static host, and exit",
    )
    parser.set_defaults(level=None)


def watch_flags(parser: Parser) -> None:
    """Add the flags of the command ``watch``."""
    parser.add_argument("level", metavar="LEVEL", help="level file on which an agent plays")
    parser.add_flag(Setting("play live, with this clock (docs/evaluate.md)", flag="live", kind=str, choices=CLOCKS))
    _common_flags(parser)
    parser.set_defaults(run=None, trust_plugins=False, export=None)


def _common_flags(parser: Parser) -> None:
    parser.add_argument(
        "--levels",
        nargs="+",
        default=[],
        metavar="PLACE",
        help="folders, campaign files or level files to show (default: the levels shipped with nppsim)",
    )
    parser.add_argument("--replays", nargs="+", default=[], metavar="DIR", help="replays to watch and to play against")
    parser.add_argument(
        "--demonstrations",
        metavar="DIR",
        default="demonstrations",
        help="folder for recorded demonstrations; pass it to --replay-data-dir of the training (default: %(default)s)",
    )
    parser.add_argument(
        "--agent",
        nargs="+",
        default=[],
        metavar="CHECKPOINT",
        help="agents to watch: checkpoints or exported networks, *.onnx (default: the shipped agent)",
    )
    parser.add_flag(Setting("TCP port; 0 selects a free one", flag="port", kind=int, default=PORT, low=0, high=65535))
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        help="address to listen at (default: %(default)s, this machine only); other addresses let other machines connect",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address without opening a browser")
    parser.add_argument(
        "--end-with-input",
        action="store_true",
        help="also exit when standard input closes; for programs that start the studio",
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve the studio until Ctrl-C, or export it.  Raises UserError for invalid folders and files, and a port in use."""
    if arguments.export is not None:
        from nppsim.studio.agent_registry import AgentRegistry
        from nppsim.studio.export import export
        from nppsim.studio.library import Library

        registry = AgentRegistry(arguments.agent)
        registry.check()
        export(arguments.export, Library(arguments.levels, arguments.replays), registry)
        print(f"the site is in {arguments.export}")
        return
    check_packages()
    from nppsim.levels.level import Level
    from nppsim.studio.agent_registry import AgentRegistry
    from nppsim.studio.app import Studio, create_app
    from nppsim.studio.library import Library

    check_output_folder(arguments.demonstrations, "--demonstrations")
    # The networks are too small to gain from threads, and live play needs the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    library = Library(arguments.levels, arguments.replays)
    registry = AgentRegistry(arguments.agent, arguments.run, trust_plugins=arguments.trust_plugins)
    registry.check()
    view = ""
    if arguments.level is not None:
        level = Level.load(arguments.level)
        view = f"#/watch/{library.add(level, Path(arguments.level).stem)}" + (
            f"/{arguments.live}" if arguments.live else ""
        )
    elif arguments.run is not None:
        view = "#/run"
    access = Access(arguments.host)
    with listening(arguments.host, arguments.port) as listener:
        every = arguments.host in EVERY_ADDRESS
        loopback = "::1" if arguments.host == "::" else LOOPBACK
        address = address_of(listener, loopback if every else arguments.host, access) + view
        print(f"the studio is at {address} (Ctrl-C ends it)", flush=True)
        if not is_local(arguments.host):
            others = address_of(listener, socket.gethostname() if every else arguments.host, access)
            print(f"note: the address for other machines is {others}; nothing is encrypted", file=sys.stderr)
        if arguments.end_with_input:
            threading.Thread(target=_end_with_input, daemon=True).start()
        if not arguments.no_browser:
            webbrowser.open(address)
        studio = Studio(library, arguments.demonstrations, registry)
        serve(create_app(studio, access), listener)


def _end_with_input() -> None:
    """Send SIGINT to this process when standard input closes."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGINT)


def check_packages() -> None:
    """Raise MissingPackageError unless all packages of the studio are installed."""
    for package in _PACKAGES:
        import_optional(package, "studio")


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket.  Raises ConfigError if the address or the port cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        problem = f"cannot listen at {host} ({error.strerror})"
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"{problem}; give an address of this machine", "--host", host) from error
        raise ConfigError(f"{problem}; choose another port, or 0 for a free one", "--port", port) from error


def address_of(listener: socket.socket, host: str, access: Access) -> str:
    """Return the URL of the page, with the access token.  host: name or address of this machine."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/?token={access.token}"


def serve(app: "Starlette", listener: socket.socket) -> None:
    """Serve the studio until Ctrl-C or a signal."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        timeout_graceful_shutdown=2,  # s; open tabs would otherwise delay the exit
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
