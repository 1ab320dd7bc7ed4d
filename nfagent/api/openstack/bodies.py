"""Request bodies of the Compute API."""

import base64
import binascii
import json
import tomllib
from typing import Annotated, Any, Literal, Self, TypeVar

from flask import request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from nfagent.api.schemas import Labels, Name
from nfagent.errors import InvalidError

Model = TypeVar("Model", bound=BaseModel)
DESCRIPTION = "description"
_Text = Annotated[str, StringConstraints(max_length=255)]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Device(_In):
    """The source of a server's disk: its image, which the ``openstack`` command sends beside ``imageRef``."""

    uuid: str
    source_type: Literal["image"]
    destination_type: Literal["local"] = "local"
    boot_index: Literal[0] = 0
    delete_on_termination: bool = True


class NewServer(_In):
    """``server`` of ``POST /servers``; members that do not apply to an NF are accepted only if empty."""

    name: Name
    flavor: Annotated[str, Field(alias="flavorRef")]
    image: Annotated[str, Field(alias="imageRef")]
    networks: Literal["none", "auto"] | list[Any] = "auto"
    user_data: str | None = None
    metadata: Labels = {}
    availability_zone: _Text | None = None
    description: _Text | None = None
    config_drive: bool | None = None
    min_count: Literal[1, "1"] = 1
    max_count: Literal[1, "1"] = 1
    disk_config: Annotated[Literal["AUTO", "MANUAL"] | None, Field(alias="OS-DCF:diskConfig")] = None
    security_groups: Annotated[list[Any], Field(max_length=0)] = []
    devices: Annotated[list[Device], Field(alias="block_device_mapping_v2", max_length=1)] = []

    @model_validator(mode="after")
    def _has_one_image(self) -> Self:
        if any(device.uuid != self.image for device in self.devices):
            raise ValueError("block_device_mapping_v2 names a different image from imageRef")
        return self

    def labels(self) -> dict[str, str]:
        """Return the metadata; the description is one of them."""
        return self.metadata if self.description is None else {**self.metadata, DESCRIPTION: self.description}

    def pin(self) -> str | None:
        """Return the pin: ``nova:HOST`` as availability zone names a location, as it names a compute host in Nova."""
        zone, _, host = (self.availability_zone or "nova").partition(":")
        if zone != "nova":
            raise InvalidError(
                "zone-unknown", f"unknown availability zone {zone!r}; expected nova", "availability_zone"
            )
        return host or None

    def config(self) -> dict[str, Any]:
        """Return the network function's configuration: the user data, as JSON or TOML."""
        if not self.user_data:
            return {}
        try:
            text = base64.b64decode(self.user_data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidError("invalid", f"user_data is not text in base64: {error}", "user_data") from error
        config = _parsed(text)
        if not isinstance(config, dict):
            raise InvalidError("invalid", "user_data is the NF's configuration: a JSON object, or TOML", "user_data")
        return config


class Create(_In):
    """``POST /servers``. Scheduler hints are accepted only if empty."""

    server: NewServer
    hints: Annotated[dict[str, Any], Field(alias="os:scheduler_hints", max_length=0)] = {}


class Migrate(_In):
    """``migrate``, in 2.56 and later with a host."""

    host: Name | None = None


class LiveMigrate(_In):
    """``os-migrateLive``; the disk options do not matter, because an NF has no disk."""

    host: Name | None = None
    block_migration: bool | Literal["auto"] = "auto"
    disk_over_commit: bool = False
    force: bool = False


class Resize(_In):
    """``resize``; the disk's configuration does not matter, because an NF has no disk."""

    flavor: Annotated[str, Field(alias="flavorRef")]
    disk_config: Annotated[Literal["AUTO", "MANUAL"] | None, Field(alias="OS-DCF:diskConfig")] = None


class Console(_In):
    """``os-getConsoleOutput``; the ``openstack`` command sends the length as a text, and -1 for all lines."""

    length: Annotated[int, Field(strict=False, ge=-1)] | None = None


class Update(_In):
    """``server`` of ``PUT /servers/{id}``."""

    name: Name | None = None
    description: _Text | None = None


class Updated(_In):
    """``PUT /servers/{id}``."""

    server: Update


class Metadata(_In):
    """``POST /servers/{id}/metadata``."""

    metadata: Labels


def read(model: type[Model]) -> Model:
    """Return the body of the current request.

    Raises:
        InvalidError: it is invalid; the error names the member.
    """
    return check(model, request.get_json())


def check(model: type[Model], data: Any) -> Model:
    """Validate parsed data as a model.

    Raises:
        InvalidError: it is invalid; the error names the member.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidError("invalid", f"Invalid input for field {where}: {first['msg']}", where) from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(json.dumps(tomllib.loads(text)))
    except (ValueError, TypeError, RecursionError) as error:
        detail = f"user_data is neither JSON nor TOML that JSON can hold: {error}"
        raise InvalidError("invalid", detail, "user_data") from error
