"""Arrays and plain text in one .npz file that says what it is, and notices when it was altered.

Nothing in it is pickled, on either side. The member "about" is JSON text with the kind of the file
and the version of its format; "checksum" covers every other member, so that a file whose zip
archive is intact but whose numbers are not the ones written is refused, too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import uuid
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np


def write(
    path: str | os.PathLike, kind: str, version: int, about: dict, arrays: dict[str, np.ndarray]
) -> None:
    """Write to exactly this path; a file that was there is replaced only when all is written.

    It keeps its permissions, and a link leads to the new file as it did to the old one. What is no
    file is never replaced: a superuser could, even a device.
    """
    text = json.dumps({"kind": kind, "format": version, **about})
    members = {"about": np.array(text), **arrays}
    members["checksum"] = np.array(_checksum(members))
    path = Path(os.path.realpath(_as_path(path)))
    if path.exists() and not path.is_file():
        raise ValueError(f"path must name a file, new or to be replaced; {path} is something else")
    unfinished = path.with_name(f".mksknn-{uuid.uuid4().hex}")
    try:
        with _open_new(unfinished) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in members.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        if path.exists():
            shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):  # there may be none
            unfinished.unlink()
        raise


def _open_new(path: Path) -> BinaryIO:
    """A file of a name that the caller never gave: what goes wrong is said of its folder."""
    try:
        return open(path, "xb")
    except OSError as error:
        message = f"path must be in a folder that takes new files; {error.strerror}"
        raise OSError(error.errno, message, str(path.parent)) from None


def read(path: str | os.PathLike, kind: str, version: int) -> tuple[dict, dict[str, np.ndarray]]:
    """What `write` was given; a ValueError says what is wrong with any other file."""
    path = _as_path(path)
    with open(path, "rb") as file:  # a missing file is no matter of contents
        try:
            with zipfile.ZipFile(file) as archive:
                return _read_members(archive, path, kind, version)
        # the second is what zipfile says of versions that it does not know
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise ValueError(
                f"{path} must be a complete {kind} file; it is truncated, damaged or no .npz file "
                f"at all ({error})"
            ) from error


def _as_path(path: object) -> Path:
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"path must be text or a path; got {type(path).__name__}")
    return Path(os.fsdecode(path))


def _read_members(
    archive: zipfile.ZipFile, path: Path, kind: str, version: int
) -> tuple[dict, dict[str, np.ndarray]]:
    names = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if not {"about", "checksum"} <= set(names):
        raise ValueError(
            f"{path} must be a {kind} file; got an archive without the members 'about' and "
            "'checksum'"
        )
    about = _parse(_member(archive, names["about"], path), path, kind)
    if about.get("kind") != kind:
        raise ValueError(f"{path} must be a {kind} file; got one of kind {about.get('kind')!r}")
    found = about.get("format")
    if isinstance(found, int) and found > version:
        raise ValueError(
            f"{path} was written in format {found}, and this version of mksknn reads formats up "
            f"to {version}: update mksknn"
        )
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"{path} must have a format from 1 to {version}; got {found!r}")
    members = {name: _member(archive, info, path) for name, info in names.items()}
    checksum = members.pop("checksum")
    if checksum.shape != () or str(checksum) != _checksum(members):
        raise ValueError(f"{path} was altered: its contents do not have the checksum it was given")
    del members["about"]
    return about, members


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> np.ndarray:
    # what is not compressed cannot be larger than the file
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{path} was altered: its member {info.filename!r} is compressed")
    try:
        raw = io.BytesIO(archive.read(info))  # checks the archive's own sums
        array = np.lib.format.read_array(raw, allow_pickle=False)
    except zipfile.BadZipFile:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} was altered: its member {info.filename!r} cannot be read ({error})"
        ) from error
    if raw.read(1):
        raise ValueError(f"{path} was altered: its member {info.filename!r} is too long")
    return array


def _parse(text: np.ndarray, path: Path, kind: str) -> dict:
    try:
        about = json.loads(str(text))
    except (ValueError, RecursionError) as error:  # the second of brackets without end
        raise ValueError(f"{path} must be a {kind} file; its text is no JSON ({error})") from error
    if not isinstance(about, dict):
        raise ValueError(f"{path} must be a {kind} file; its text is no JSON object")
    return about


def _checksum(members: dict[str, np.ndarray]) -> str:
    """A digest of names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(members):
        array = np.ascontiguousarray(members[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(members[name])}\n".encode())
        if array.nbytes:
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
