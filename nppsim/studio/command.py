"""``python -m nppsim studio`` and ``watch``: open the studio in the browser and serve it until it is stopped."""

import argparse
import os
import signal
import socket
import sys
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from nppsim.errors import ConfigError, needed
from nppsim.files import check_output_folder
from nppsim.settings import Parser, Setting
from nppsim.studio.security import LOOPBACK, MAX_BODY, Access, is_local

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from nppsim.studio.recordings import Recordings

PORT = 8765
EVERY_ADDRESS = ("0.0.0.0", "::")  # of this machine
_PACKAGES = ("starlette", "uvicorn", "websockets")


def flags(parser: Parser) -> None:
    """Add the flags of ``studio``."""
    _common_flags(parser)
    parser.add_argument("--run", metavar="EXPERIMENT", help="a training to follow: its folder")
    parser.set_defaults(level=None)


def watch_flags(parser: Parser) -> None:
    """Add the flags of ``watch``."""
    parser.add_argument("level", metavar="LEVEL", help="a level file")
    _common_flags(parser)
    parser.set_defaults(run=None)


def _common_flags(parser: Parser) -> None:
    parser.add_argument(
        "--levels",
        nargs="+",
        default=[],
        metavar="PLACE",
        help="folders, campaign files, level files (default: nppsim's own)",
    )
    parser.add_argument("--replays", nargs="+", default=[], metavar="DIR", help="replays to watch, and as ghosts")
    parser.add_argument(
        "--demonstrations",
        metavar="DIR",
        default="demonstrations",
        help="where recordings go that become demonstrations; --replay-data-dir of training takes it (default: %(default)s)",
    )
    parser.add_argument(
        "--agent",
        nargs="+",
        default=[],
        metavar="CHECKPOINT",
        help="agents to watch, also exported ones, *.onnx (default: the one that is shipped)",
    )
    parser.add_flag(Setting("0 takes any that is free", flag="port", kind=int, default=PORT, low=0, high=65535))
    parser.add_argument(
        "--host", default=LOOPBACK, help="address to listen at; another than %(default)s lets other machines in"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument(
        "--end-with-input", action="store_true", help="end with standard input, too: for programs that start the studio"
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve until Ctrl-C.  Raises UserError for folders and files that are none, and a port that is taken."""
    check_packages()
    from nppsim.env import STARTER_LEVELS
    from nppsim.levels.level import Level
    from nppsim.levels.level_set import LevelSet
    from nppsim.studio.app import Studio, create_app
    from nppsim.studio.game import Game
    from nppsim.studio.leaderboard import FILE, Leaderboard, data_folder
    from nppsim.studio.library import Library
    from nppsim.studio.roster import Roster

    check_output_folder(arguments.demonstrations, "--demonstrations")
    # Networks are small: threads that wait for each other cost them more than they gain, and play needs the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    library = Library(arguments.levels, arguments.replays)
    roster = Roster(arguments.agent, arguments.run)
    roster.check()
    view = ""
    if arguments.level is not None:
        level = Level.load(arguments.level)
        view = f"#/watch/{library.add(level, Path(arguments.level).stem)}"
    elif arguments.run is not None:
        view = "#/run"
    access = Access(arguments.host)
    with listening(arguments.host, arguments.port) as listener:
        Game(LevelSet.open(STARTER_LEVELS)[0]).play(np.zeros(1, np.uint8))  # compiles the kernels, the first time
        every = arguments.host in EVERY_ADDRESS
        address = address_of(listener, LOOPBACK if every else arguments.host, access) + view
        print(f"the studio is at {address} (Ctrl-C ends it)", flush=True)
        if not is_local(arguments.host):
            others = address_of(listener, socket.gethostname() if every else arguments.host, access)
            print(f"note: from other machines it is {others}; nothing is encrypted", file=sys.stderr)
        if arguments.end_with_input:
            threading.Thread(target=_end_with_input, daemon=True).start()
        if not arguments.no_browser:
            webbrowser.open(address)
        studio = Studio(library, arguments.demonstrations, roster, Leaderboard(data_folder() / FILE))
        recordings = None if arguments.end_with_input else studio.recordings  # its output is not read
        serve(create_app(studio, access), listener, recordings)


def _end_with_input() -> None:
    """End this process, as Ctrl-C does, when there is no more to be read."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGINT)


def check_packages() -> None:
    """MissingPackageError unless all that the studio needs is installed."""
    for package in _PACKAGES:
        needed(package, "studio")


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens.  ConfigError where that cannot be."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        advice = f"cannot listen at {host} ({error.strerror}); choose another port, or 0 for any that is free"
        raise ConfigError(advice, "--port", port) from error


def address_of(listener: socket.socket, host: str, access: Access) -> str:
    """Return the URL of the page with a name of this machine and the token."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/?token={access.token}"


def serve(app: "Starlette", listener: socket.socket, recordings: "Recordings | None" = None) -> None:
    """Answer until Ctrl-C or a signal, which end it.

    recordings: stored runs; while some are in no file, the first Ctrl-C only prints a warning.
    """
    import uvicorn

    class Server(uvicorn.Server):
        warned = False

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            count = recordings.unsaved if recordings is not None else 0
            if sig == signal.SIGINT and count and not self.warned:
                self.warned = True
                runs = "1 stored run is" if count == 1 else f"{count} stored runs are"
                print(
                    f"{runs} in no file: save all under Runs in the page, or press Ctrl-C again to lose them",
                    flush=True,
                )
            else:
                super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        log_level="warning",
        ws_max_size=MAX_BODY,
        ws_per_message_deflate=False,  # nothing to gain on the same machine
        timeout_graceful_shutdown=2,  # s, for tabs that are open
    )
    with suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listener])
