"""Upload of the folder of a run to S3 or an S3-compatible store.

    uploader = Uploader(config.upload, run_folder.name)    # before training; UploadError for wrong settings
    uploader.sync(run_folder)                              # uploads new and changed files

Credentials come only from the environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary ones,
AWS_SESSION_TOKEN.  They are never written to a file.  AWS_REGION or AWS_DEFAULT_REGION sets the region, AWS_ENDPOINT_URL the
address of an S3-compatible store.  ``s3_manifest.json`` in the folder lists the uploaded files.  Needs the extra ``s3``.
"""

import os
from pathlib import Path
from typing import Any

from nppsim.errors import UserError, import_optional, redact
from nppsim.io.files import LOCK, write_json
from nppsim.io.reading import read_object
from rl.config import UploadConfig

MANIFEST = "s3_manifest.json"
ATTEMPTS = 3  # largest number of attempts per request
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_UNFINISHED = (".tmp", ".part")  # suffixes of files being written


class UploadError(UserError, RuntimeError):
    """An upload that failed.  The message contains no credentials."""


class Uploader:
    """Copies the folder of a run to ``s3://bucket/prefix/run_name/``.  It deletes nothing there.

    config: bucket and prefix.
    run_name: part of the keys of all objects in the bucket.
    Raises UploadError if credentials are missing or the bucket cannot be used, MissingPackageError without boto3.
    """

    def __init__(self, config: UploadConfig, run_name: str):
        self.bucket = config.bucket
        self.prefix = "/".join(part for part in (*config.prefix.split("/"), run_name) if part)
        self._client, self._errors = _connect()
        try:
            self._client.head_bucket(Bucket=self.bucket)
        except self._errors as error:
            raise UploadError(f"bucket {self.bucket!r} cannot be used: {_reason(error)}") from error

    def sync(self, folder: Path) -> int:
        """Upload new and changed files of the folder; return their number.

        Raises UploadError if an upload fails.  The next call then uploads the remaining files.
        """
        manifest = self._read_manifest(folder / MANIFEST)
        uploaded = 0
        try:
            for path in sorted(folder.rglob("*")):
                name = path.relative_to(folder).as_posix()
                if not path.is_file() or name == MANIFEST or path.suffix in _UNFINISHED or path.name == LOCK:
                    continue
                stat = path.stat()
                key = f"{self.prefix}/{name}"
                entry = {"key": key, "bytes": stat.st_size, "modified_ns": stat.st_mtime_ns}
                if manifest.get(name) != entry:
                    self._upload(path, key)
                    manifest[name] = entry
                    uploaded += 1
        finally:
            if uploaded:
                content = {"bucket": self.bucket, "prefix": self.prefix, "objects": manifest}
                write_json(folder / MANIFEST, content)
        if uploaded:
            self._upload(folder / MANIFEST, f"{self.prefix}/{MANIFEST}")
        return uploaded

    def _upload(self, path: Path, key: str) -> None:
        try:
            self._client.upload_file(str(path), self.bucket, key)
        except self._errors as error:
            raise UploadError(f"{path} could not be uploaded to s3://{self.bucket}/{key}: {_reason(error)}") from error

    def _read_manifest(self, path: Path) -> dict[str, dict]:
        """Read the entries of uploaded files; return {} if the manifest is of another bucket."""
        shape = {"bucket": str, "objects": {...: {}}}
        manifest = read_object(path, UploadError, "delete it to upload everything again", shape=shape)
        return manifest["objects"] if manifest and manifest["bucket"] == self.bucket else {}


def _connect() -> tuple[Any, tuple[type[Exception], ...]]:
    """Return the S3 client and its error classes."""
    boto3 = import_optional("boto3", "s3")
    botocore = import_optional("botocore.exceptions", "s3")
    if missing := [name for name in _CREDENTIALS if not os.environ.get(name)]:
        raise UploadError(f"--s3-bucket needs credentials: set {' and '.join(missing)} in the environment")
    errors = (import_optional("boto3.exceptions", "s3").Boto3Error, botocore.BotoCoreError, botocore.ClientError)
    limits = import_optional("botocore.config", "s3").Config(
        connect_timeout=10, read_timeout=60, retries={"max_attempts": ATTEMPTS, "mode": "standard"}
    )
    try:
        client = boto3.client(
            "s3",
            aws_access_key_id=os.environ[_CREDENTIALS[0]],
            aws_secret_access_key=os.environ[_CREDENTIALS[1]],
            aws_session_token=os.environ.get("AWS_SESSION_TOKEN"),
            region_name=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
            endpoint_url=os.environ.get("AWS_ENDPOINT_URL"),
            config=limits,
        )
    except (*errors, ValueError) as error:  # ValueError: the endpoint is not a URL
        raise UploadError(f"S3 cannot be used: {_reason(error)}") from error
    return client, errors


def _reason(error: Exception) -> str:
    code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
    advice = {
        "404": "it does not exist; create it, or correct --s3-bucket",
        "NoSuchBucket": "it does not exist; create it, or correct --s3-bucket",
        "403": "access is denied; check the credentials in the environment and the bucket's policy",
        "AccessDenied": "access is denied; check the credentials in the environment and the bucket's policy",
        "301": "it is in another region; set AWS_REGION",
    }
    return advice.get(code) or f"{redact(str(error))}; check the network, AWS_ENDPOINT_URL and AWS_REGION"
