"""The private names of the Pulumi SDK that this engine needs, in one place: there is no public way to any of them.

`RELEASE` is the one that they were read in; the tests hold it against requirements.txt, and no other module may use
private names. Not here: what is done with them (`wire`).
"""

from pulumi.runtime import rpc

RELEASE = "3.272.0"
SECRET = rpc._special_secret_sig
OUTPUT = rpc._special_output_value_sig
RESOURCE = rpc._special_resource_sig
ASSET = rpc._special_asset_sig
ARCHIVE = rpc._special_archive_sig
"""Signatures of the wire format."""
