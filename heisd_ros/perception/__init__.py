"""Camera messages to pictures, pictures to sets, features to the retrieval embedding."""

from heisd_ros.perception.embedding import EMBEDDING_SIZE, join_views
from heisd_ros.perception.images import (
    SUPPORTED_ENCODINGS,
    ImageError,
    centre_crop,
    decode_compressed,
    decode_image,
    prepare_image,
    resize,
    rotate,
)
from heisd_ros.perception.pairing import FramePairer

__all__ = [
    "EMBEDDING_SIZE",
    "SUPPORTED_ENCODINGS",
    "FramePairer",
    "ImageError",
    "centre_crop",
    "decode_compressed",
    "decode_image",
    "join_views",
    "prepare_image",
    "resize",
    "rotate",
]
