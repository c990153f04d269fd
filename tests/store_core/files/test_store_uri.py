from __future__ import annotations

import copy
import json
import pickle

import pytest

from store_core.errors import StoreReadError
from store_core.files.store_directory import StoreDirectory, expand_paths, named_store
from store_core.files.store_uri import StoreUri

SECRETS = ("AKIAKEY", "SEC%2FRET", "SEC/RET", "hunter22", "tok3n")
SHOWN = [
    ("s3://AKIAKEY:SEC%2FRET@b/x?region=eu&scheme=http", "s3://b/x?region=eu&scheme=http"),
    ("s3://AKIAKEY:SEC/RET@b/x/y@z", "s3://b/x/y@z"),
    ("s3://b/x?access_key=AKIAKEY&session_token=tok3n", "s3://b/x"),
    ("s3://b/x?endpoint_override=h:9000", "s3://b/x?endpoint_override=h:9000"),
    ("s3://b/x?endpoint_override=http://me:hunter22@h", "s3://b/x"),
    ("hdfs://me:hunter22@nn:8020/x", "hdfs://me@nn:8020/x"),
    ("hdfs://nn:8020/x@y", "hdfs://nn:8020/x@y"),
    ("abfs://data:hunter22@account/x", "abfs://data@account/x"),
    ("abfs://:hunter22@account/x", "abfs://account/x"),
    ("abfs://data@account/x?sig=tok3n&enable_tls=true", "abfs://data@account/x?enable_tls=true"),
    ("gs://anonymous@b/x", "gs://anonymous@b/x"),
    ("webhdfs://me:hunter22@nn:9870/x", "webhdfs://me@nn:9870/x"),
]


@pytest.mark.parametrize(("location", "shown"), SHOWN)
def test_what_may_be_secret_is_not_shown(location, shown):
    uri = StoreUri(location)
    assert uri == shown
    assert f"{uri} {uri!r} {uri:s}" == f"{shown} {shown!r} {shown}"
    assert json.dumps([uri]) == json.dumps([shown])
    for again in (pickle.loads(pickle.dumps(uri)), copy.deepcopy(uri), StoreUri(uri)):
        assert (again, again.location) == (shown, location)
    assert StoreUri(shown).location == shown


@pytest.mark.parametrize(("location", "_"), SHOWN)
def test_texts_of_libraries_are_cleaned(location, _):
    text = StoreUri(location).hide_in(f"Cannot parse URI: '{location}' (key AKIAKEY)")
    held = [secret for secret in SECRETS if secret in location]
    assert not [secret for secret in held if secret in text]


def test_directories_show_what_may_be_shown_and_open_the_rest():
    directory = StoreDirectory("s3://AKIAKEY:SEC%2FRET@b/x")
    again = pickle.loads(pickle.dumps(directory))
    for one in (directory, again):
        assert one.uri == "s3://b/x"
        assert one.uri.location == "s3://AKIAKEY:SEC%2FRET@b/x"
        assert repr(one) == "StoreDirectory('s3://b/x')"
    [path] = expand_paths(["s3://AKIAKEY:SEC%2FRET@b/x"])
    assert (path, path.location) == ("s3://b/x", "s3://AKIAKEY:SEC%2FRET@b/x")
    assert type(named_store("/data/store")) is str


@pytest.mark.parametrize(
    "location", ["nothing://AKIAKEY:SEC%2FRET@b/x", "s3://AKIAKEY:SEC%2FRET@b/x?secret=tok3n"]
)
def test_errors_of_opening_tell_no_secret(location):
    with pytest.raises(StoreReadError) as caught:
        StoreDirectory(location).resolve()
    told = str(caught.value)
    assert "no filesystem opens this URI" in told
    assert not [secret for secret in SECRETS if secret in told]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
