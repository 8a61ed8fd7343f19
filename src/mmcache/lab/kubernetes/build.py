"""kube-apiserver, kube-controller-manager and etcd, made from Debian's packages and kept outside the repository.

Everything is fetched by apt, with its signatures checked, into a folder of its own: nothing is installed, the machine's
list of sources is left as it is, and root is not needed. Downloads, generated files and compiled packages are left
where a run is cut off, so that the next one goes on from there; what is finished appears at once or not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmcache.lab.kubernetes import sources
from mmcache.lab.kubernetes.calls import call
from mmcache.model.errors import AssetError
from mmcache.settings import lab_folder

COMMAND = "python -m mmcache.lab.kubernetes"
VERSION = "1.20.2"
GO = "1.19"
SERVERS = ("kube-apiserver", "kube-controller-manager", "etcd")
_REVISION = 1
"""Of how it is built: a higher one builds again."""
_SOURCE_SHA256 = "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc"
_FREE_BYTES = 4 << 30
_GO_PACKAGES = (f"golang-{GO}-go", f"golang-{GO}-src", "golang-github-modern-go-reflect2-dev", "etcd-server")
_NO_OPENAPI = ("code-generator", "sample-apiserver")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Servers:
    """The programs, each by its name, and what they were made from."""

    folder: Path

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    @property
    def manifest(self) -> Mapping[str, object]:
        """Versions, SHA-256 and sizes, as written when they were built."""
        found: dict[str, object] = json.loads((self.folder / "manifest.json").read_text())
        return found


def place() -> Path:
    """The folder that they are in, or would be."""
    return lab_folder() / "kubernetes" / f"{VERSION}-{platform.machine()}-{_REVISION}"


def find() -> Servers:
    """What was built before. Raises `AssetError`, which says how to build it."""
    servers = Servers(place())
    try:
        sizes = {name: servers[name].stat().st_size for name in SERVERS}
        told = servers.manifest
    except (OSError, ValueError) as error:
        raise AssetError(f"no Kubernetes API server here: run `{COMMAND}` (Debian 12, a few minutes)") from error
    if told.get("bytes") != sizes:
        raise AssetError(f"{servers.folder} is not what was built; remove it, then run `{COMMAND}`")
    return servers


def build(tell: Tell = lambda _: None) -> Servers:
    """Fetch and compile what is not here yet. Raises `AssetError`, which says what is missing."""
    try:
        return find()
    except AssetError:
        sources.check()
    target = place()
    work = target.with_name(f".{target.name}.building")
    _room(target.parent)
    with _alone(target.with_name(f".{target.name}.lock"), tell):
        if target.is_dir():  # another process was building while we waited; or it is damaged
            try:
                return find()
            except AssetError:
                shutil.rmtree(target)
        started = time.monotonic()
        work.mkdir(exist_ok=True)
        made = _compiled(work, tell)
        (made / "manifest.json").write_text(json.dumps(_manifest(made, work, time.monotonic() - started), indent=2))
        made.rename(target)
        shutil.rmtree(work)
    return find()


def _compiled(work: Path, tell: Tell) -> Path:
    root, tree = work / "root", work / "go" / "src" / "k8s.io" / "kubernetes"
    with _once(work, "unpacked") as needed:
        if needed:
            tell("fetching Kubernetes' source, Go and etcd (130 MB)")
            shutil.rmtree(root, ignore_errors=True)
            shutil.rmtree(tree, ignore_errors=True)
            fetched = sources.fetch(work / "apt", "kubernetes", _GO_PACKAGES)
            _unpack(fetched, root, tree)
    with _once(work, "generated") as needed:
        if needed:
            tell("generating the API's description")
            _generate(work, tree)
    tell("compiling (some minutes, 2 processes, 1.5 GB)")
    made = work / "made"
    made.mkdir(exist_ok=True)
    _go(work, "build", "-tags", "providerless", "-ldflags", _stamp(), "-o", f"{made}/",
        *(f"./cmd/{name}" for name in SERVERS[:2]))  # fmt: skip
    shutil.copy2(root / "usr" / "bin" / "etcd", made / "etcd")
    return made


def _unpack(fetched: Sequence[Path], root: Path, tree: Path) -> None:
    """Debian's way: the original, then its patches; and the one library that the newer Go cannot do without."""
    tree.mkdir(parents=True)
    for package in fetched:
        if package.name.endswith(".deb"):
            call(["dpkg-deb", "--extract", str(package), str(root)])
    (original,) = (file for file in fetched if ".orig.tar" in file.name)
    found = _sha256(original)
    if found != _SOURCE_SHA256:
        raise AssetError(f"{original.name} has SHA-256 {found}, not the pinned {_SOURCE_SHA256}; it needs Debian 12")
    call(["tar", "-xf", str(original), "-C", str(tree), "--strip-components=1"])
    (debian,) = (file for file in fetched if ".debian.tar" in file.name)
    call(["tar", "-xf", str(debian), "-C", str(tree)])
    for patch in (tree / "debian/patches/series").read_text().split():
        call(["patch", "--strip=1", "--silent", f"--input={tree / 'debian/patches' / patch}"], tree)
    # The vendored one makes the server crash on the first custom resource.
    library = Path("github.com/modern-go/reflect2")
    shutil.rmtree(tree / "vendor" / library)
    shutil.copytree(root / "usr/share/gocode/src" / library, tree / "vendor" / library)


def _generate(work: Path, tree: Path) -> None:
    """The one generated file that the source archive lacks (`make gen_openapi`)."""
    generator = work / "openapi-gen"
    _go(work, "build", "-o", str(generator), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
    tagged = {
        file.parent.relative_to(tree)
        for top in ("pkg", "staging")
        for file in (tree / top).rglob("*.go")
        if not any(word in file.parts for word in _NO_OPENAPI) and not file.name.endswith("_test.go")
        and b"+k8s:openapi-gen=" in file.read_bytes()
    }  # fmt: skip
    packages = (str(folder).replace("staging/src/", "vendor/", 1) for folder in sorted(tagged))
    call([
        str(generator), "--logtostderr", "-i", ",".join(f"k8s.io/kubernetes/{package}" for package in packages),
        "-p", "k8s.io/kubernetes/pkg/generated/openapi", "-O", "zz_generated.openapi", "-r", os.devnull,
        "-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
    ], tree, _environment(work))  # fmt: skip


def _go(work: Path, *words: str) -> None:
    go = work / "root/usr/lib" / f"go-{GO}" / "bin/go"
    call([str(go), *words], work / "go/src/k8s.io/kubernetes", _environment(work))


def _environment(work: Path) -> Mapping[str, str]:
    root = work / "root/usr/lib" / f"go-{GO}"
    return {
        "GOROOT": str(root), "GOPATH": str(work / "go"), "GOCACHE": str(work / "compiled"), "GO111MODULE": "off",
        "CGO_ENABLED": "0", "GOFLAGS": "-p=2", "GOENV": "off", "GOTELEMETRY": "off", "HOME": str(work), "LC_ALL": "C",
        "PATH": f"{root}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }  # fmt: skip


def _stamp() -> str:
    """What the programs say of their version; without the tables for a debugger."""
    major, minor, _ = VERSION.split(".")
    told = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    places = ("component-base/version", "client-go/pkg/version")
    return " ".join(["-s -w", *(
        f"-X k8s.io/kubernetes/vendor/k8s.io/{place}.{name}={value}" for place in places for name, value in told.items()
    )])  # fmt: skip


def _manifest(made: Path, work: Path, seconds: float) -> dict[str, object]:
    files = [made / name for name in SERVERS]
    return {
        "version": VERSION,
        "go": (work / "root/usr/lib" / f"go-{GO}" / "VERSION").read_text().strip(),
        "packages": sorted(file.name for file in (work / "apt").iterdir() if file.suffix in (".deb", ".dsc")),
        "source_sha256": _SOURCE_SHA256,
        "sha256": {file.name: _sha256(file) for file in files},
        "bytes": {file.name: file.stat().st_size for file in files},
        "build_seconds": round(seconds),
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _once(work: Path, stage: str) -> Iterator[bool]:
    """Whether a stage is still to be done; it counts as done when the block ends well."""
    done = work / f"{stage}.done"
    needed = not done.exists()
    yield needed
    done.touch()


@contextmanager
def _alone(lock: Path, tell: Tell) -> Iterator[None]:
    """One builder at a time; a second one waits for the first."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another process is building it: waiting")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _room(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AssetError(f"cannot write {folder}: {error.strerror}; set XDG_CACHE_HOME to a folder of yours") from error
    if shutil.disk_usage(folder).free < _FREE_BYTES:
        raise AssetError(f"building Kubernetes takes 3 GB for a while; {folder} has less than 4 GB free")
