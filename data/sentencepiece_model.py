"""The fields of a SentencePiece model's file that we read (sentencepiece_model.proto).

sentencepiece has generated code for the whole file, which starts with one version of protobuf only
(7.36 for 0.2.3) and not with that of apache-beam (below 7).
"""

import enum
import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Messages, with the name, number, type and default of each field.
_FIELDS = {
    "SentencePiece": [
        ("piece", 1, "STRING", ""),
        ("score", 2, "FLOAT", "0"),
        ("type", 3, "INT32", "1"),
    ],
    "TrainerSpec": [
        ("model_type", 3, "INT32", "1"),
        ("treat_whitespace_as_suffix", 24, "BOOL", "false"),
    ],
    "NormalizerSpec": [
        ("precompiled_charsmap", 2, "BYTES", ""),
        ("add_dummy_prefix", 3, "BOOL", "true"),
        ("remove_extra_whitespaces", 4, "BOOL", "true"),
        ("escape_whitespaces", 5, "BOOL", "true"),
    ],
    "ModelProto": [
        ("pieces", 1, "SentencePiece", None),
        ("trainer_spec", 2, "TrainerSpec", None),
        ("normalizer_spec", 3, "NormalizerSpec", None),
    ],
}
BPE = 2  # a `model_type`


class Type(enum.IntEnum):
    """Type of a piece."""

    NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def parse_model(content: bytes) -> Any:
    """Return a model's message, with `pieces`, `trainer_spec` and `normalizer_spec`.

    Its `SerializeToString` keeps the fields that are not read.
    """
    return _message_class().FromString(content)


@functools.cache
def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="ropewalk.proto", package="ropewalk")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, default in fields:
            entry = message.field.add(name=field, number=number, default_value=default)
            entry.label = entry.LABEL_REPEATED if field == "pieces" else entry.LABEL_OPTIONAL
            if kind in _FIELDS:
                entry.type, entry.type_name = entry.TYPE_MESSAGE, f".ropewalk.{kind}"
            else:
                entry.type = entry.Type.Value(f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("ropewalk.ModelProto"))
