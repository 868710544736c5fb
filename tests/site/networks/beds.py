"""Network filesystems with several separate clients on this machine.

`testbeds` tells where the scripts are that bring them up. A bed is named by its kind and, where the same server is
mounted in several ways, the way: `nfs v3`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from testbeds import SHARED_FILESYSTEMS as SCRIPTS

HERE = Path(__file__).parent
TESTS = HERE.parents[1]

N_CLIENTS = 3
UP_WITHIN_S = 120
STALE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client of a filesystem: a host as far as the filesystem can tell."""

    name: str
    prefix: tuple[str, ...]
    """Runs a program there."""
    mount: str
    """Where the filesystem is, as programs there see it."""
    frozen_by: int | None = None
    """Process of this machine whose SIGSTOP freezes the whole client."""

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a Python program there. Its standard input ends with the returned process."""
        scratch = "/run/cache" if self.frozen_by else f"{self.mount}-cache"
        environ = ["env", "OMP_NUM_THREADS=1", f"PYTHONPATH={TESTS.parent}:{TESTS}", f"FSCTX_CACHE={scratch}"]
        return subprocess.Popen(
            [*self.prefix, *environ, sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *command: str, timeout_s: float = 120.0) -> str:
        """Run a Python program there and return what it printed."""
        process = self.start(*command)
        try:
            printed, said = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        assert process.returncode == 0, f"{command} on {self.name}: {said}"
        return printed

    def cat(self, path: str) -> str:
        """Read a file there."""
        command = [*self.prefix, "cat", path]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{path} on {self.name}: {done.stderr}"
        return done.stdout

    def kill(self, pid: int, signal_name: str) -> None:
        """Send a signal to a process there."""
        subprocess.run([*self.prefix, "kill", f"-{signal_name}", str(pid)], stdin=subprocess.DEVNULL, check=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a kind of bed is brought up."""

    script: str
    programs: tuple[str, ...]
    """What must be installed."""
    packages: str
    """Debian's names for that."""
    environ: dict[str, str]


KINDS = {
    "stale": Kind(script="stale_fuse.py", programs=("fusermount3",), packages="fuse3", environ={}),
    "nfs": Kind(
        script="nfs-uml.sh",
        programs=("linux.uml", "busybox", "exportfs", "rpcbind", "ip", "mkfs.ext4", "bc", "modprobe"),
        packages="user-mode-linux busybox-static nfs-common nfs-kernel-server rpcbind iproute2 e2fsprogs bc kmod",
        environ={"SERVER": "knfsd", "MNT": "v3 v41", "MEM": "512M"},
    ),
    "moosefs": Kind(
        script="moosefs.sh",
        programs=("mfsmaster", "mfschunkserver", "mfsmount", "ip", "bc"),
        packages="moosefs-master moosefs-chunkserver moosefs-client iproute2 bc",
        environ={},
    ),
    "gluster": Kind(
        script="gluster.sh",
        programs=("glusterd", "gluster", "ip", "bc"),
        packages="glusterfs-server glusterfs-client iproute2 bc",
        environ={"KIND": "distribute"},
    ),
    "gluster-replica": Kind(
        script="gluster.sh",
        programs=("glusterd", "gluster", "ip", "bc"),
        packages="glusterfs-server glusterfs-client iproute2 bc",
        environ={"KIND": "replica"},
    ),
}


@contextmanager
def bed_of(kind_name: str) -> Iterator[Path]:
    """Bring a bed up; yield the folder of its state. Skips the test where something that it needs is missing."""
    kind = KINDS[kind_name]
    _require(kind_name, kind)
    state = Path(tempfile.mkdtemp(prefix=f"fsbed-{kind_name}-", dir="/var/tmp"))  # short: sockets have names in it
    environ = {**os.environ, **kind.environ, "RUN": str(state), "N": str(N_CLIENTS)}
    try:
        if kind_name == "nfs":
            environ["PATH"] = f"{_guest_launcher(state)}:{environ['PATH']}"
        _call(kind_name, kind, "up", state, environ)
        yield state
    finally:
        _call(kind_name, kind, "down", state, environ, must_succeed=False)
        shutil.rmtree(state, ignore_errors=True)


def clients_of(kind_name: str, state: Path, way: str = "") -> list[Client]:
    """Return the clients of a bed that is up."""
    hosts = json.loads((state / "bed.json").read_text())["hosts"]
    is_guest = kind_name == "nfs"
    return [
        Client(
            name=host["name"],
            prefix=tuple(host["exec"]),
            mount=f"{host['mnt']}/{way}".rstrip("/"),
            frozen_by=int((state / f"{host['name']}.pid").read_text()) if is_guest else None,
        )
        for host in hosts
    ]


def _require(name: str, kind: Kind) -> None:
    if not SCRIPTS.is_dir():
        pytest.skip(f"the scripts of the beds are not there: {SCRIPTS} (FSCTX_TESTBEDS says where they are)")
    if os.geteuid() != 0:
        pytest.skip("mounting filesystems needs root")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in kind.programs if shutil.which(program, path=path) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing: apt-get install {kind.packages}")
    if name == "stale":
        pytest.importorskip("mfusepy", reason="pip install mfusepy")


def _call(
    name: str, kind: Kind, action: str, state: Path, environ: dict[str, str], *, must_succeed: bool = True
) -> None:
    command = [str(SCRIPTS / kind.script), action]
    if name == "stale":
        options = ["--n", str(N_CLIENTS), "--ttl", str(STALE_S), "--neg", str(STALE_S)]
        command = [sys.executable, *command, str(state), *(options if action == "up" else [])]
    with (state / f"{action}.log").open("w") as log:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=UP_WITHIN_S, check=False
        )
    is_up = (state / "bed.json").exists() or action != "up"
    assert not must_succeed or (done.returncode == 0 and is_up), (state / f"{action}.log").read_text()


def _guest_launcher(state: Path) -> Path:
    """Return a folder whose `linux.uml` also runs where the processor has more registers than it knows (AMX)."""
    folder = state / "bin"
    folder.mkdir()
    program = shutil.which("linux.uml")
    if "amx_tile" not in Path("/proc/cpuinfo").read_text():
        return folder
    compiler = shutil.which("cc") or pytest.skip("user-mode Linux needs a C compiler on this processor: install gcc")
    library = folder / "uml_xstate.so"
    source = HERE / "uml_xstate.c"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    launcher = folder / "linux.uml"
    launcher.write_text(f'#!/bin/sh\nexec env LD_PRELOAD={library} {program} "$@"\n')
    launcher.chmod(0o755)
    return folder
