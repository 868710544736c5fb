"""Starts an agent from a packed environment: fetches the archive, unpacks it once per node, becomes the agent.

    python3 bootstrap.py RUN --env DIGEST [options of fsctx agent]

One file that needs any Python from 3.8 on and nothing else. It cannot import fsctx, so it spells some names of the
run (docs/protocol.md) and of the node's cache (fsctx/cache/layout.py) itself. DIGEST names the environment by its
content: whoever can write to the run's folder cannot make a node execute anything else.

Exit codes: 4 damaged, 75 this node cannot (another may), 78 no node can; and afterwards those of fsctx agent.
"""

import argparse
import base64
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib

DAMAGED, UNFIT, MISCONFIGURED = 4, 75, 78
ASK = (
    "import json, os, sys, sysconfig;"
    "print(json.dumps([sysconfig.get_config_var('SOABI'),"
    " os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable)]))"
)
PLACES = ("/usr/bin", "/usr/local/bin", "/bin")
"""Where interpreters are looked for besides PATH, which some batch systems leave empty."""


class Stop(Exception):
    """The end: an exit code and a line for people."""

    def __init__(self, code, line):
        super().__init__(line)
        self.code = code


def main(argv):
    """Become the agent, or return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--env", required=True, metavar="DIGEST", help="the environment: see fsctx env add")
    parser.add_argument("--cache", metavar="DIR", help="the node's cache, for the agent too")
    parser.add_argument("--no-peers", action="store_true", help="fetch from the shared filesystem alone")
    args, options = parser.parse_known_args(argv)
    try:
        return start(args, options)
    except Stop as stop:
        say(stop)
        return stop.code
    except OSError as error:
        say(f"{error.filename or 'this node'}: {error.strerror or error}")
        return UNFIT


def start(args, options):
    """Prepare the environment and replace this process by the agent."""
    record, raw = read_record(args.run, args.env)
    base = find_base(record["environment"])
    cache = Cache(cache_root(os.environ, args.cache), record, args.env)
    cache.prepare()
    cache.pin()
    if not cache.is_ready():
        with cache.locked():
            if not cache.is_ready():
                cache.make(raw, base, sources(args, record))
    cache.touch()
    become_agent(cache, args, options)


def become_agent(cache, args, options):
    """Replace this process. The pin goes along: it is a lock of the open file."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    bin_folder = os.path.join(cache.environment, "bin")
    environ.update(
        FSCTX_CACHE=cache.root,
        VIRTUAL_ENV=cache.environment,
        PATH=os.pathsep.join([bin_folder, environ.get("PATH", os.defpath)]),
    )
    agent = ["-P", "-m", "fsctx", "agent", args.run, *options, *(["--no-peers"] if args.no_peers else [])]
    python = os.path.join(bin_folder, "python")
    os.execve(python, [python, *agent], environ)


def read_record(run, digest):
    """Return an environment's record and the bytes that it was read from; it is what the digest says, or refused."""
    if not re.match(r"[0-9a-f]{64}\Z", digest):
        raise Stop(MISCONFIGURED, f"--env {digest} is no digest: pass what `fsctx env add` printed")
    path = os.path.join(run, "contexts", digest + ".json")
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        if not os.path.isdir(run):
            raise Stop(UNFIT, f"{run} cannot be seen from this node: is the filesystem mounted here?") from None
        raise Stop(MISCONFIGURED, f"{run} does not know the environment {digest[:12]}: run `fsctx env add`") from None
    try:
        record = json.loads(raw.decode("utf-8"))
        is_sound = digest_of(record) == digest and is_one_archive(record)
    except (ValueError, TypeError, KeyError):
        is_sound = False
    if not is_sound:
        raise Stop(DAMAGED, f"{path} is damaged: run `fsctx env add` again")
    return record, raw


def digest_of(record):
    """Return the digest that a record must have: that of what plan makes."""
    digest = hashlib.sha256(f"{record['kind']}\n{record['chunk_bytes']}\n".encode())
    for file in record["files"]:
        digest.update(f"{file['path']}\0{file['size_bytes']}\0{' '.join(file['chunks'])}\n".encode())
    return digest.hexdigest()


def is_one_archive(record):
    """Tell whether a record is of one file in a folder, and says what an environment needs."""
    (file,) = record["files"]
    name, environment = file["path"], record["environment"]
    texts = [record["origin"], record["name"], *(environment[key] for key in ("packed", "python", "soabi"))]
    is_plain = "/" not in name and "\0" not in name and name not in ("", ".", "..")
    return is_plain and all(isinstance(text, str) for text in texts) and isinstance(environment["unpacked_bytes"], int)


def find_base(environment):
    """Return the node's interpreter for an environment; None where it brings its own."""
    wanted = environment["soabi"]
    if environment["packed"] == "conda":
        if os.uname().machine not in wanted:
            raise Stop(UNFIT, f"the environment is for {wanted} and this node is {os.uname().machine}")
        return None
    name = "python" + environment["python"]
    folders = [*os.get_exec_path(), *PLACES]
    tried = [sys.executable, *(os.path.join(folder, name) for folder in folders)]
    for path in dict.fromkeys(tried):
        if path and os.access(path, os.X_OK):
            soabi, base = ask(path)
            if soabi == wanted:
                return base
    raise Stop(
        UNFIT,
        f"this node has no Python {environment['python']} ({wanted}): neither {sys.executable} nor a {name} in PATH is"
        " one; start the bootstrap with one, install it, or pack a conda environment, which brings its own",
    )


def ask(python):
    """Return an interpreter's SOABI and where it really is; nothing if it does not run."""
    try:
        said = subprocess.run(
            [python, "-I", "-c", ASK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        ).stdout
        soabi, base = json.loads(said.decode())
    except (OSError, ValueError):
        return None, None
    return soabi, base


def cache_root(environ, cache):
    """Return the folder of the node's cache, as fsctx agent chooses it."""
    if cache or environ.get("FSCTX_CACHE"):
        return os.path.abspath(os.path.expanduser(cache or environ["FSCTX_CACHE"]))
    scratch = [environ[name] for name in ("_CONDOR_SCRATCH_DIR", "SLURM_TMPDIR", "TMPDIR") if environ.get(name)]
    return os.path.join(os.path.abspath((scratch or [tempfile.gettempdir()])[0]), f"fsctx-{os.getuid()}")


class Cache:
    """The part of the node's cache that belongs to one environment: its archive, and the folder unpacked from it."""

    def __init__(self, root, record, digest):
        self.root, self.record = root, record
        self.environment = os.path.join(root, "environments", digest)
        self.archive = os.path.join(root, "contexts", digest, record["files"][0]["path"])
        self._incoming = os.path.join(root, "incoming", "contexts-" + digest)
        self._making = os.path.join(root, "incoming", "environments-" + digest)
        self._ready = os.path.join(root, "records", f"environments-{digest}.json")
        self._archive_record = os.path.join(root, "records", f"contexts-{digest}.json")
        self._lock = os.path.join(root, "locks", digest)
        self._pin = os.path.join(root, "pins", "environments-" + digest)

    def prepare(self):
        """Make the folders, for their owner alone; refuse what another user could have filled."""
        os.makedirs(os.path.dirname(self.root), exist_ok=True)
        names = ("contexts", "environments", "incoming", "locks", "pins", "records")
        for path in [self.root, *(os.path.join(self.root, name) for name in names)]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            seen = os.lstat(path)
            is_shared = seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or is_shared:
                raise Stop(UNFIT, f"{path} is not a folder of this user alone: pass --cache DIR")

    def pin(self):
        """Keep others from removing the environment for as long as this process lives, as an agent too."""
        pin = os.open(self._pin, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(pin, fcntl.LOCK_SH)
        os.set_inheritable(pin, True)  # noqa: FBT003

    @contextlib.contextmanager
    def locked(self):
        """Hold the digest's lock: one process of the node fetches and unpacks."""
        while True:
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(lock), os.stat(self._lock)):  # else its holder removed it
                        yield
                        return
            finally:
                os.close(lock)

    def is_ready(self):
        """Tell whether the environment stands, with all its files: some sites sweep old ones out of /tmp."""
        try:
            with open(self._ready, "rb") as file:
                return json.loads(file.read().decode())["entries"] <= count(self.environment)
        except (OSError, ValueError, KeyError):
            return False

    def touch(self):
        """Note that both were used now: the longest unused go first."""
        for path in (self.environment, os.path.dirname(self.archive)):
            with contextlib.suppress(OSError):
                os.utime(path)

    def make(self, raw, base, fetchers):
        """Fetch the archive unless it is here, and unpack it. What a killed process left is used or removed."""
        began = time.monotonic()
        new, old = os.path.join(self._making, "files"), os.path.join(self._making, "debris")
        shutil.rmtree(self._making, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._ready)
        self._check_room()
        try:
            brought = self._fetch(raw, fetchers)
        finally:
            for fetcher in fetchers:
                fetcher.close()
        try:
            os.mkdir(self._making, 0o700)
            unpack(self.archive, new)
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.environment, old)  # half swept away: who still uses it goes on with the new one
            os.rename(new, self.environment)
            fix(self.environment, self.record["environment"], base)
            sync_disk(self.environment)
            ready = dict(self.record, files=[], entries=count(self.environment))
            write_whole(self._ready, json.dumps(ready).encode())
        finally:
            shutil.rmtree(self._making, ignore_errors=True)
        sources = ", ".join(f"{n / 1e6:.1f} MB from {name}" for name, n in brought.items()) or "archive was here"
        say(f"environment {self.record['name']} unpacked in {time.monotonic() - began:.1f} s ({sources})")

    def _check_room(self):
        needed = self.record["environment"]["unpacked_bytes"]
        if not os.path.exists(self.archive):
            needed += self.record["files"][0]["size_bytes"]
        free = shutil.disk_usage(self.root).free
        if free < needed:
            raise Stop(
                UNFIT,
                f"{self.root} has {free / 1e9:.2f} GB free and the environment needs {needed / 1e9:.2f} GB:"
                " free some space (`fsctx cache prune`), or pass --cache DIR on another disk",
            )

    def _fetch(self, raw, fetchers):
        """Bring the archive here unless it is, and sound; resume what was begun. Return the bytes by source."""
        if os.path.exists(self.archive):
            if all(sha256 == hash_of(self.archive, offset, size) for sha256, offset, size in self._chunks()):
                return {}
            shutil.rmtree(os.path.dirname(self.archive))
        files, journal = os.path.join(self._incoming, "files"), os.path.join(self._incoming, "journal")
        path = os.path.join(files, self.record["files"][0]["path"])
        os.makedirs(files, mode=0o700, exist_ok=True)
        noted, brought = noted_in(journal), {}
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with open(fd, "r+b", buffering=0) as out, open(journal, "wb", buffering=0) as notes:
            for number, (sha256, offset, size) in enumerate(self._chunks()):
                if number not in noted or hash_of(path, offset, size) != sha256:
                    name, data = first_of(fetchers, sha256, offset, size)
                    out.seek(offset)
                    out.write(data)
                    brought[name] = brought.get(name, 0) + size
                notes.write(b"%d\n" % number)
            os.fchmod(fd, 0o444)
            os.fsync(fd)
        write_whole(self._archive_record, raw)
        os.rename(files, os.path.dirname(self.archive))
        shutil.rmtree(self._incoming, ignore_errors=True)
        return brought

    def _chunks(self):
        """List hash, offset and size of the archive's chunks."""
        file, step = self.record["files"][0], self.record["chunk_bytes"]
        for number, sha256 in enumerate(file["chunks"]):
            yield sha256, number * step, min(step, file["size_bytes"] - number * step)


def hash_of(path, offset, size):
    """Return the SHA-256 of a piece of a file."""
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return hashlib.sha256(file.read(size)).hexdigest()


def noted_in(journal):
    """Return the numbers of the chunks that an interrupted fetch had written."""
    try:
        with open(journal, "rb") as file:
            return {int(line) for line in file.read().split(b"\n")[:-1] if line.isdigit()}
    except FileNotFoundError:
        return set()


def first_of(fetchers, sha256, offset, size):
    """Return a chunk from the first source that gives it, and that source's name. The last one does in the end."""
    while True:
        for fetcher in fetchers:
            data = fetcher.get(sha256, offset, size)
            if data is not None:
                return fetcher.name, data


def sources(args, record):
    """Return where chunks come from, in order."""
    if args.no_peers:
        return [Origin(record)]
    size = record["files"][0]["size_bytes"]
    return [Peers(args.run, args.env), Origin(record, Slot(os.path.join(args.run, "slots"), size))]


class Slot:
    """The right to read the archive, `environment-<k>.<g>`: two nodes of a run at a time; others wait for peers.

    A courtesy: nothing but time depends on it. Who holds one counts in it, and writes `free` in the end. One that says
    so, or says the same for as long as another watches, is taken by creating its next generation.
    """

    N = 2
    TTL_S, BEAT_S, LONGEST_REST_S = 60.0, 2.0, 8.0
    PATIENCE_S, BYTES_PER_S = 30.0, 20e6
    FREE = b"free\n"

    def __init__(self, folder, size):
        self._folder, self._path = folder, None
        self._until = time.monotonic() + self.PATIENCE_S + size / self.BYTES_PER_S
        self._rest_s, self._beats, self._beaten = 0.5, 0, 0.0
        self._seen = {}

    def take(self):
        """Tell whether to read now: with a slot, or after a time without; else rest before telling that."""
        try:
            self._path = self._path or self._try()
            if self._path is not None:
                self._beat()
                return True
        except OSError:  # it only makes things faster
            return True
        left = self._until - time.monotonic()
        if left > 0:
            time.sleep(min(left, self._rest_s * random.uniform(0.5, 1.0)))
            self._rest_s = min(2 * self._rest_s, self.LONGEST_REST_S)
        return left <= 0

    def free(self):
        """Give the slot back, if there is one."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._write(self.FREE)
        self._path = None

    def _try(self):
        os.makedirs(self._folder, exist_ok=True)
        latest = dict.fromkeys(range(self.N), -1)
        for name in os.listdir(self._folder):
            found = re.match(r"environment-(\d+)\.(\d+)\Z", name)
            if found and int(found.group(1)) < self.N:
                latest[int(found.group(1))] = max(int(found.group(2)), latest[int(found.group(1))])
        for number, generation in random.sample(sorted(latest.items()), self.N):
            if generation < 0 or self._is_free(self.path(number, generation)):
                path = self.path(number, generation + 1)
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
                    if generation >= 1:  # keeps the folder small
                        with contextlib.suppress(OSError):
                            os.unlink(self.path(number, generation - 1))
                    return path
        return None

    def path(self, number, generation):
        """Return where one generation of a slot is."""
        return os.path.join(self._folder, f"environment-{number}.{generation}")

    def _is_free(self, path):
        try:
            with open(path, "rb") as file:
                content = file.read()
        except FileNotFoundError:  # there is a later one by now
            return False
        if self._seen.get(path, (None,))[0] != content:
            self._seen[path] = content, time.monotonic()
        return content == self.FREE or time.monotonic() - self._seen[path][1] >= self.TTL_S

    def _beat(self):
        if time.monotonic() - self._beaten >= self.BEAT_S:
            self._beats, self._beaten = self._beats + 1, time.monotonic()
            self._write(b"%d\n" % self._beats)

    def _write(self, content):
        with open(self._path, "wb") as file:
            file.write(content)


class Origin:
    """The archive on the shared filesystem."""

    name = "the shared filesystem"

    def __init__(self, record, slot=None):
        self._slot, self._folder = slot, record["origin"]
        self._path = os.path.join(self._folder, record["files"][0]["path"])

    def get(self, sha256, offset, size):
        """Return a chunk; None where it is not this node's turn yet."""
        if self._slot is not None and not self._slot.take():
            return None
        try:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(offset)
                data = file.read(size)
        except FileNotFoundError:
            if not os.path.isdir(self._folder):
                raise Stop(UNFIT, f"{self._folder} cannot be seen from this node: is it mounted here?") from None
            raise Stop(DAMAGED, f"{self._path} is gone: put it back, or run `fsctx env add` with another") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Stop(DAMAGED, f"{self._path} changed since it was added: put it back, or run `fsctx env add`")
        return data

    def close(self):
        """Let others read."""
        if self._slot is not None:
            self._slot.free()


class Peers:
    """Agents of the run that serve what their nodes hold (docs/protocol.md). They may only ever make it faster."""

    name = "peers"
    PATIENCE_S = 10.0
    """So long, all in all, peers that fail may cost."""
    LOOK_EVERY_S = 5.0
    CONNECT_S, SILENCE_S, SLOWEST_BYTES_PER_S = 2.0, 3.0, 4 << 20
    MOST_ASKED = 3

    def __init__(self, run, digest):
        self._folder, self._digest = os.path.join(run, "peers"), digest
        self._looked = self._lost_s = 0.0
        self._dropped, self._known, self._connections = set(), {}, {}
        try:
            with open(os.path.join(self._folder, "secret"), "rb") as file:
                self._secret = file.read().decode("ascii")
        except (OSError, ValueError):
            self._secret = ""

    def get(self, sha256, offset, size):
        """Return a chunk, or None where no peer gives it soon."""
        if not self._secret or self._lost_s > self.PATIENCE_S:
            return None
        self._look()
        known = [name for name in self._known if name not in self._dropped]
        for name in random.sample(known, min(self.MOST_ASKED, len(known))):
            began = time.monotonic()
            try:
                data = self._ask(name, sha256, size)
            except (OSError, http.client.HTTPException, ValueError):
                self._drop(name)
                data = None
            if data is not None:
                return data
            self._lost_s += time.monotonic() - began
        return None

    def close(self):
        """Hang up."""
        for connection in self._connections.values():
            connection.close()

    def _look(self):
        """Read who serves, at most every few seconds; what cannot be read is not there."""
        if self._looked and time.monotonic() - self._looked < self.LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                if name.endswith(".json") and name not in self._dropped:
                    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                        with open(os.path.join(self._folder, name), "rb") as file:
                            peer = json.loads(file.read().decode())
                        if base64.b64decode(peer["contexts"].get(self._digest, "")).strip(b"\0"):
                            self._known[name] = str(peer["address"]), int(peer["port"])

    def _ask(self, name, sha256, size):
        """Return a chunk from one peer; None if it does not have it or is busy. All other faults raise."""
        if name not in self._connections:
            self._connections[name] = http.client.HTTPConnection(*self._known[name], timeout=self.CONNECT_S)
        connection, end = self._connections[name], time.monotonic() + self.SILENCE_S + size / self.SLOWEST_BYTES_PER_S
        connection.request("GET", "/chunk/" + sha256, headers={"X-Fsctx-Secret": self._secret})
        connection.sock.settimeout(self.SILENCE_S)
        response = connection.getresponse()
        if response.status in (404, 503) and not response.length:
            response.read()
            return None
        data = bytearray()
        if response.status == 200 and response.length == size:
            while len(data) < size and time.monotonic() < end:
                piece = response.read(min(1 << 20, size - len(data)))
                if not piece:
                    break
                data += piece
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError("not the chunk")
        return data

    def _drop(self, name):
        self._dropped.add(name)
        self._connections.pop(name).close()


def unpack(archive, folder):
    """Unpack an archive into a new folder; nothing of it may be, or lead, outside."""
    os.mkdir(folder, 0o700)
    root = os.path.realpath(folder)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extraction_filter = tarfile.data_filter
            for member in tar:
                if leads_out(member, root):
                    raise Stop(DAMAGED, f"{archive}: {member.name} is or leads out of it: pack it again")
                member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
                member.mode = member.mode & 0o755 | 0o600
                tar.extract(member, folder)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Stop(DAMAGED, f"{archive} is damaged ({error}): pack it again") from None
    except OSError as error:
        if error.errno is None:  # gzip's own
            raise Stop(DAMAGED, f"{archive} is damaged ({error}): pack it again") from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Stop(UNFIT, f"{root} is full: free some space (`fsctx cache prune`), or pass --cache DIR") from None
        raise


def leads_out(member, root):
    """Tell whether a member of an archive is, or links to, anything but what is under `root`.

    A link may go up by its leading `..` alone, and no further than it lies deep; a name may not pass through a link.
    Then no chain of links leads out, whatever comes later.
    """
    parent, _ = os.path.split(os.path.normpath(member.name))
    if os.path.isabs(member.name) or ".." in member.name.split("/"):
        return True
    if os.path.realpath(os.path.join(root, parent)) != os.path.normpath(os.path.join(root, parent)):
        return True
    if member.issym():
        steps = [step for step in member.linkname.split("/") if step not in ("", ".")]
        n_up = next((n for n, step in enumerate(steps) if step != ".."), len(steps))
        depth = len([step for step in parent.split("/") if step])
        return os.path.isabs(member.linkname) or ".." in steps[n_up:] or n_up > depth
    if member.islnk():
        return os.path.isabs(member.linkname) or ".." in member.linkname.split("/")
    return not (member.isreg() or member.isdir())


def fix(folder, environment, base):
    """Make an unpacked environment work where it is: a venv uses the node's interpreter, conda's tool mends paths."""
    python = os.path.join(folder, "bin", "python")
    if environment["packed"] == "conda":
        done = subprocess.run([python, os.path.join(folder, "bin", "conda-unpack")], stderr=subprocess.PIPE)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise Stop(UNFIT, f"conda-unpack failed in {folder} ({said})")
        return
    os.makedirs(os.path.dirname(python), exist_ok=True)
    os.symlink(base, python)
    for name in ("python3", "python" + environment["python"]):
        os.symlink("python", os.path.join(folder, "bin", name))
    lines = "home = %s\ninclude-system-site-packages = false\nversion = %s\n"
    with open(os.path.join(folder, "pyvenv.cfg"), "w") as file:
        file.write(lines % (os.path.dirname(base), environment["python"]))


def count(folder):
    """Count what is in a tree, bytecode left out, which Python adds by itself."""
    n = 0
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        n += len(folders) + len(files)
    return n


def sync_disk(folder):
    """Make all that was written on a folder's disk durable, in one call."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(fd)
    except AttributeError:  # no such call in this C library
        os.sync()
    finally:
        os.close(fd)


def write_whole(path, data):
    """Write a file that is whole when it has its name."""
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def say(line):
    """Tell people."""
    print(f"fsctx bootstrap: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
