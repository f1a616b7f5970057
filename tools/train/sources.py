"""Collects the training text: Debian packages -> one JSONL file of cleaned documents.

Every document is Python source, reStructuredText or plain-text documentation, or a manual page
rendered to text. Nothing is fetched but the packages named here, through apt-get.

  python sources.py --work DIR   # DIR/debs, DIR/root (unpacked), DIR/documents.jsonl
"""

import argparse
import concurrent.futures
import gzip
import hashlib
import json
import os
import re
import subprocess
import unicodedata
from pathlib import Path

MANUALS = """
manpages manpages-dev coreutils grep sed findutils tar bash git-man util-linux util-linux-extra
mount bsdextrautils openssh-client gzip bzip2 xz-utils diffutils procps psmisc rsync wget less
vim-common make man-db glibc-doc gawk perl-doc perl dpkg apt systemd iproute2 iputils-ping bc cpio
file patch zip unzip sudo passwd login adduser cron hostname net-tools tcpdump strace gdb jq sqlite3
ed nano
""".split()
TEXTS = "python3.11-doc vim-runtime cmake-data linux-doc-6.1".split()
PYTHON = """
libpython3.11-minimal libpython3.11-stdlib python3-django python3-sympy python3-numpy python3-scipy
python3-networkx python3-matplotlib python3-jinja2 python3-sqlalchemy python3-twisted
python3-pygments python3-mypy python3-setuptools python3-requests python3-flask python3-werkzeug
python3-pandas python3-sklearn python3-docutils python3-sphinx python3-tornado python3-aiohttp
python3-urllib3 python3-attr python3-click python3-rich python3-pytest python3-yaml python3-babel
python3-astroid python3-cryptography python3-dateutil python3-tz python3-bs4 python3-html5lib
python3-markdown python3-psutil python3-distlib python3-parso python3-jedi python3-prompt-toolkit
python3-ipython python3-nltk python3-pexpect python3-gevent meson mercurial-common
""".split()
PACKAGES = MANUALS + TEXTS + PYTHON

PER_PACKAGE = {
    "linux-doc-6.1": 30_000_000,
    "python3.11-doc": 20_000_000,
    "libpython3.11-stdlib": 20_000_000,
    "libpython3.11-minimal": 20_000_000,
}
DEFAULT_PER_PACKAGE = 6_000_000  # bytes; keeps one large library from filling the mixture
LONGEST = 160_000  # bytes of one document; generated tables are longer than this
SKIP = re.compile(
    r"/(tests?|testing|locale|encodings|_vendor|vendored|pydoc_data|translations)/"
    r"|_pb2\.py|unicode|entities"
)


def fetch(work):
    """Downloads and unpacks the packages that are not there yet."""
    debs, root = work / "debs", work / "root"
    debs.mkdir(parents=True, exist_ok=True)
    have = {p.name.split("_")[0] for p in debs.glob("*.deb")}
    missing = [p for p in PACKAGES if p not in have]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=debs, check=True)
    for deb in debs.glob("*.deb"):
        into = root / deb.name.split("_")[0]
        if deb.name.split("_")[0] in PACKAGES and not into.exists():
            subprocess.run(["dpkg", "-x", str(deb), str(into)], check=True)


# Read from copyright files that are not in the machine-readable form.
LICENCES = {
    "patch": "GPL-3+",
    "python3-html5lib": "MIT",
    "python3-jinja2": "BSD-3-Clause",
    "python3-yaml": "MIT",
    "strace": "LGPL-2.1+",
    "tcpdump": "BSD-3-Clause",
    "unzip": "Info-ZIP",
    "wget": "GPL-3+",
    "zip": "Info-ZIP",
    "manpages-dev": "as manpages",
    "glibc-doc": "LGPL-2.1+",
    "libpython3.11-minimal": "PSF-2.0",
    "libpython3.11-stdlib": "PSF-2.0",
    "python3.11-doc": "PSF-2.0",
}


def versions(work):
    """Package -> (version, licences named in its copyright file): what the model card lists."""
    out = {}
    for deb in sorted((work / "debs").glob("*.deb")):
        name, version = deb.name.split("_")[:2]
        if name not in PACKAGES:
            continue
        text = ""
        for copyright in (work / "root" / name).glob("usr/share/doc/*/copyright*"):
            text += copyright.read_text(errors="replace") if copyright.suffix != ".gz" else ""
        found = re.findall(r"^License: *([^\s].{0,40})$", text, re.M)
        ranked = sorted(set(found), key=lambda x: (-found.count(x), x))
        out[name] = (
            version.replace("%3a", ":"),
            ranked[:4] or [LICENCES.get(name, "see its copyright file")],
        )
    return out


def clean(text):
    """NFC, no control characters or overstrikes, no trailing blanks, at most two blank lines."""
    text = re.sub(r".\x08", "", text.replace("\r\n", "\n").replace("\f", "\n"))
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ufeff\ufffd]", "", text)
    text = unicodedata.normalize("NFC", text)
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip() + "\n"


def plausible(text):
    """Drops tables, data and other scripts: they would cost vocabulary and teach nothing."""
    if not 200 < len(text) < LONGEST:
        return False
    ascii_share = sum(c < "\x7f" for c in text) / len(text)
    letters = sum(c.isalpha() for c in text) / len(text)
    longest = max(len(line) for line in text.split("\n"))
    return ascii_share > 0.97 and letters > 0.35 and longest < 1000


def render(path):
    """One manual page as plain text, 80 columns, without hyphenation."""
    with gzip.open(path, "rt", errors="replace") as f:
        if f.read(200).lstrip().startswith(".so "):
            return None
    env = dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8", MANROFFOPT="-rHY=0")
    done = subprocess.run(
        ["man", "--no-hyphenation", "--no-justification", "-P", "cat", "-l", str(path)],
        capture_output=True,
        env=env,
    )
    return done.stdout.decode("utf-8", "replace")


def manual_files(root, package):
    return sorted(p for p in (root / package).glob("usr/share/man/man*/*.gz") if not p.is_symlink())


def text_files(root, package):
    base = root / package
    patterns = ["**/_sources/**/*.rst.txt", "**/Help/**/*.rst", "**/doc/*.txt", "**/*.rst.gz"]
    return sorted(
        {
            p
            for pattern in patterns
            for p in base.glob(pattern)
            if p.is_file() and not p.is_symlink()
        }
    )


def python_files(root, package):
    return sorted(
        p for p in (root / package).glob("usr/**/*.py") if p.is_file() and not SKIP.search(str(p))
    )


def read_text(path):
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", "replace")


def documents(root, workers):
    """Yields (kind, package, path, text). Order inside a package is by hash: a capped package is a
    fair sample.
    """
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        kinds = [
            ("manual", MANUALS, manual_files, render),
            ("text", TEXTS, text_files, read_text),
            ("python", PYTHON, python_files, read_text),
        ]
        for kind, packages, find, read in kinds:
            for package in packages:
                files = sorted(
                    find(root, package), key=lambda p: hashlib.sha1(p.name.encode()).digest()
                )
                for path, text in zip(files, pool.map(read, files)):
                    if text:
                        yield kind, package, str(path.relative_to(root)), text


def collect(work, workers=2):
    seen, used, counts = set(), {}, {}
    with open(work / "documents.jsonl", "w") as out:
        for kind, package, path, text in documents(work / "root", workers):
            text = clean(text)
            digest = hashlib.sha1(re.sub(r"\s+", " ", text).encode()).digest()
            if digest in seen or not plausible(text):
                continue
            if used.get(package, 0) + len(text) > PER_PACKAGE.get(package, DEFAULT_PER_PACKAGE):
                continue
            seen.add(digest)
            used[package] = used.get(package, 0) + len(text)
            counts[kind] = counts.get(kind, 0) + len(text)
            out.write(
                json.dumps({"kind": kind, "package": package, "path": path, "text": text}) + "\n"
            )
    info = {"characters": counts, "per_package": used, "packages": versions(work)}
    (work / "sources.json").write_text(json.dumps(info, indent=1))
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    fetch(args.work)
    print(collect(args.work))
    # The table of the model card.
    info = json.loads((args.work / "sources.json").read_text())
    rows = [
        f"| {name} | {version} | {', '.join(licences)} | {info['per_package'][name]:,} |"
        for name, (version, licences) in info["packages"].items()
        if name in info["per_package"]
    ]
    table = [
        "| Debian package | version | licences its copyright file names most | characters |",
        "|---|---|---|---|",
        *rows,
    ]
    (args.work / "sources.md").write_text("\n".join(table) + "\n")
