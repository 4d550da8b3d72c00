"""Upload, against a server on this machine that speaks S3."""

import json
import sys

import pytest

from nppsim.errors import MissingPackageError
from rl.config import UploadConfig
from rl.upload import MANIFEST, Uploader, UploadError

boto3 = pytest.importorskip("boto3", reason="the extra s3 is not installed")
moto_server = pytest.importorskip("moto.server", reason="moto's server is not installed")

CONFIG = UploadConfig(bucket="results", prefix="experiments/")


@pytest.fixture(scope="module")
def address():
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store(address, monkeypatch):
    """The server with an empty bucket, and credentials for it in the environment."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key-for-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-for-tests")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="results")
    yield client
    for item in client.list_objects_v2(Bucket="results").get("Contents", []):
        client.delete_object(Bucket="results", Key=item["Key"])
    client.delete_bucket(Bucket="results")


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "first_20260101_000000"
    (folder / "videos").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "videos" / "a.mp4").write_bytes(b"film")
    (folder / "checkpoint.tmp").write_bytes(b"half")
    return folder


def stored(client):
    return {item["Key"]: item["Size"] for item in client.list_objects_v2(Bucket="results").get("Contents", [])}


def test_sync_uploads_new_and_changed_files(store, run_folder):
    uploader = Uploader(CONFIG, run_folder.name)
    base = f"experiments/{run_folder.name}"
    assert uploader.sync(run_folder) == 2
    assert set(stored(store)) == {f"{base}/config.json", f"{base}/videos/a.mp4", f"{base}/{MANIFEST}"}
    assert uploader.sync(run_folder) == 0
    (run_folder / "config.json").write_text('{"new": 1}')
    assert uploader.sync(run_folder) == 1
    assert store.get_object(Bucket="results", Key=f"{base}/config.json")["Body"].read() == b'{"new": 1}'


def test_sync_manifest_of_other_process_continues(store, run_folder):
    Uploader(CONFIG, run_folder.name).sync(run_folder)
    manifest = json.loads((run_folder / MANIFEST).read_text())
    assert manifest["bucket"] == "results"
    assert manifest["objects"]["videos/a.mp4"]["bytes"] == 4
    assert Uploader(CONFIG, run_folder.name).sync(run_folder) == 0
    assert "a-secret-for-tests" not in (run_folder / MANIFEST).read_text()


def test_sync_failed_upload_raises_and_retries(store, run_folder):
    uploader = Uploader(CONFIG, run_folder.name)
    upload, calls = uploader._client.upload_file, []

    def fail_on_the_second(path, bucket, key):
        calls.append(key)
        if len(calls) == 2:
            raise boto3.exceptions.S3UploadFailedError("the line is dead")
        upload(path, bucket, key)

    uploader._client.upload_file = fail_on_the_second
    with pytest.raises(UploadError, match=r"a\.mp4 could not be uploaded to s3://results/.*the line is dead"):
        uploader.sync(run_folder)
    uploader._client.upload_file = upload
    assert uploader.sync(run_folder) == 1


def test_uploader_missing_bucket_raises(store):
    with pytest.raises(UploadError, match="bucket 'nothing-here'"):
        Uploader(UploadConfig(bucket="nothing-here"), "run")


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_uploader_credentials_only_from_environment(store, monkeypatch, tmp_path, name):
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.delenv(name)
    with pytest.raises(UploadError, match=f"set {name} in the environment"):
        Uploader(CONFIG, "run")


def test_uploader_unreachable_store_error_is_redacted(store, monkeypatch):
    monkeypatch.setattr("rl.upload.ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://name:a-secret-for-tests@127.0.0.1:9")
    with pytest.raises(UploadError, match="check the network, AWS_ENDPOINT_URL") as error:
        Uploader(CONFIG, "run")
    assert "a-secret-for-tests" not in str(error.value)


def test_uploader_invalid_endpoint_raises(store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    with pytest.raises(UploadError, match="S3 cannot be used: .*nonsense"):
        Uploader(CONFIG, "run")


def test_uploader_without_boto3_raises(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'nppsim\[s3\]'"):
        Uploader(CONFIG, "run")


def test_sync_broken_manifest_raises(store, run_folder):
    (run_folder / MANIFEST).write_text("{")
    with pytest.raises(UploadError, match="not JSON .* delete it"):
        Uploader(CONFIG, run_folder.name).sync(run_folder)
