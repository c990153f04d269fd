from __future__ import annotations

import os

import pytest

from store_core.files.regular_file import check_regular, open_to_read, open_to_write, read_file


def test_regular_files_are_opened(tmp_path):
    path = str(tmp_path / "file")
    os.close(open_to_write(path, os.O_CREAT))
    fd = open_to_write(path)
    os.write(fd, b"abc")
    os.close(fd)
    assert read_file(path) == b"abc"
    os.close(open_to_write(path, os.O_TRUNC))
    assert read_file(path) == b""
    check_regular(path)


@pytest.mark.parametrize("opened", [open_to_read, open_to_write])
@pytest.mark.parametrize(
    ("put", "kind"),
    [(os.mkfifo, "a FIFO"), (os.mkdir, "a directory"), (lambda path: path, "a device")],
)
def test_others_are_refused_at_once(tmp_path, opened, put, kind):
    path = tmp_path / "file"
    path = "/dev/full" if put(path) else path
    with pytest.raises(OSError, match=f"is {kind}, where a regular file was expected"):
        opened(str(path))


def test_links_are_read_and_not_written(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_file(str(tmp_path / "link")) == b"abc"
    with pytest.raises(OSError, match="is a link to file; nothing is written through links"):
        open_to_write(str(tmp_path / "link"))
    (tmp_path / "nowhere").symlink_to("gone")
    with pytest.raises(OSError, match="is a link to gone"):
        open_to_write(str(tmp_path / "nowhere"), os.O_CREAT)
    assert not (tmp_path / "gone").exists()


def test_what_is_missing_is_missing(tmp_path):
    for opened in (open_to_read, open_to_write):
        with pytest.raises(FileNotFoundError):
            opened(str(tmp_path / "file"))
        with pytest.raises(OSError, match="holds a NUL"):
            opened("a\0b")
