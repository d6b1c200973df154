import array
import io
import zlib

import numpy as np
import pytest
from PIL import Image

from heisd_ros.errors import DataError
from heisd_ros.perception import SUPPORTED_ENCODINGS, ImageError, decode_compressed, decode_image

# A 4x2 scene: left half one colour, right half another, flat over every chroma sample.
LEFT, RIGHT = (180, 60, 40), (30, 90, 200)
SCENE = np.array([[LEFT, LEFT, RIGHT, RIGHT]] * 2, dtype=np.uint8)


def to_yuv(picture):
    """BT.601 with luma 16..235, from the definition."""
    red, green, blue = (picture[..., channel] / 255.0 for channel in range(3))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    u = 224.0 * (blue - luma) / 1.772 + 128.0
    v = 224.0 * (red - luma) / 1.402 + 128.0
    return [np.round(part).astype(np.uint8) for part in (16.0 + 219.0 * luma, u, v)]


def yuv422(picture, *, luma_first):
    luma, u, v = to_yuv(picture)
    chroma = np.empty_like(luma)
    chroma[:, 0::2], chroma[:, 1::2] = u[:, 0::2], v[:, 0::2]
    planes = [luma, chroma] if luma_first else [chroma, luma]
    return np.stack(planes, axis=2).reshape(len(luma), -1)


def yuv420(picture, *, u_first):
    luma, u, v = (part for part in to_yuv(picture))
    planes = [u, v] if u_first else [v, u]
    chroma = np.stack([plane[0::2, 0::2] for plane in planes], axis=2).reshape(len(luma) // 2, -1)
    return np.concatenate([luma, chroma])


def with_alpha(picture):
    return np.dstack([picture, np.full(picture.shape[:2], 99, dtype=np.uint8)])


def rows_of(encoding, picture=SCENE):
    """Encode a picture; uint8 rows without padding."""
    swapped = picture[..., ::-1]
    rows = {
        "rgb8": lambda: picture,
        "bgr8": lambda: swapped,
        "8UC3": lambda: swapped,
        "rgba8": lambda: with_alpha(picture),
        "bgra8": lambda: with_alpha(swapped),
        "8UC4": lambda: with_alpha(swapped),
        "yuv422_yuy2": lambda: yuv422(picture, luma_first=True),
        "yuyv": lambda: yuv422(picture, luma_first=True),
        "yuv422": lambda: yuv422(picture, luma_first=False),
        "uyvy": lambda: yuv422(picture, luma_first=False),
        "nv12": lambda: yuv420(picture, u_first=True),
        "nv21": lambda: yuv420(picture, u_first=False),
    }[encoding]()
    return np.ascontiguousarray(rows).reshape(len(rows), -1)


def decode(encoding, rows, height, width, *, padding=0, extra=b"", is_bigendian=False):
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=255)
    data = padded.tobytes() + extra
    return decode_image(height, width, encoding, padded.shape[1], data, is_bigendian)


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8", "rgba8", "bgra8", "8UC3", "8UC4"])
def test_packed_colours_are_exact(encoding):
    picture = decode(encoding, rows_of(encoding), 2, 4)
    assert picture.dtype == np.uint8
    assert picture.shape == (2, 4, 3)
    assert (picture == SCENE).all()


@pytest.mark.parametrize("encoding", ["yuv422_yuy2", "yuyv", "yuv422", "uyvy", "nv12", "nv21"])
@pytest.mark.parametrize("padding", [0, 6])
def test_luma_and_chroma_are_close(encoding, padding):
    picture = decode(encoding, rows_of(encoding), 2, 4, padding=padding)
    assert picture.shape == (2, 4, 3)
    assert np.abs(picture.astype(int) - SCENE).max() <= 3


def test_chroma_of_every_colour_stays_in_range():
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (8, 16, 3), dtype=np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    for encoding in ("yuyv", "uyvy", "nv12"):
        decoded = decode(encoding, rows_of(encoding, colours), 16, 32)
        assert np.abs(decoded.astype(int) - colours).max() <= 4


@pytest.mark.parametrize("encoding", ["mono8", "8UC1"])
def test_grey_fills_all_three_channels(encoding):
    rows = np.array([[0, 100, 255], [1, 2, 3]], dtype=np.uint8)
    picture = decode(encoding, rows, 2, 3, padding=5)
    assert (picture == rows[..., None]).all()
    assert picture.shape == (2, 3, 3)


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("depth", [8, 16])
def test_a_bayer_mosaic_of_one_colour(pattern, depth):
    tile = {"r": 180, "g": 60, "b": 40}
    first = np.array([[tile[pattern[0]], tile[pattern[1]]], [tile[pattern[2]], tile[pattern[3]]]])
    mosaic = np.tile(first, (1, 2))
    rows = (mosaic * (257 if depth == 16 else 1)).astype(f"<u{depth // 8}")
    picture = decode(f"bayer_{pattern}{depth}", rows.view(np.uint8), 2, 4, padding=4)
    assert (picture == LEFT).all()


@pytest.mark.parametrize("is_bigendian", [False, True])
def test_sixteen_bits_keep_the_upper_eight(is_bigendian):
    order = ">" if is_bigendian else "<"
    samples = np.array([[0x12FF, 0xABCD, 0x0001]], dtype=f"{order}u2")
    for encoding, expected in (("rgb16", (0x12, 0xAB, 0)), ("bgr16", (0, 0xAB, 0x12))):
        picture = decode(
            encoding, samples.view(np.uint8), 1, 1, padding=3, is_bigendian=is_bigendian
        )
        assert tuple(picture[0, 0]) == expected
    grey = decode("mono16", samples.view(np.uint8), 1, 3, padding=10, is_bigendian=is_bigendian)
    assert grey[0, :, 0].tolist() == [0x12, 0xAB, 0]


def test_padded_rows_never_show():
    # Width 5, step 24: nine bytes of 255 behind every row; pixel (r, c) = (10 r, 10 c, 7).
    expected = np.array([[(10 * r, 10 * c, 7) for c in range(5)] for r in range(3)], dtype=np.uint8)
    picture = decode("rgb8", expected.reshape(3, 15), 3, 5, padding=9)
    assert (picture == expected).all()
    longer = decode("rgb8", expected.reshape(3, 15), 3, 5, padding=9, extra=b"\xff" * 4)
    assert (longer == expected).all()


def test_the_last_row_may_come_without_padding():
    data = bytes(range(6)) + b"\xff\xff" + bytes(range(6, 12))
    assert decode_image(2, 2, "rgb8", 8, data).ravel().tolist() == list(range(12))


@pytest.mark.parametrize("missing", [1, 12])
def test_short_data_is_refused(missing):
    data = SCENE.tobytes()[:-missing]
    with pytest.raises(ImageError, match="24 bytes") as caught:
        decode_image(2, 4, "rgb8", 12, data)
    assert caught.value.reason == "short_data"


def test_missing_chroma_is_short_data():
    with pytest.raises(ImageError) as caught:
        decode_image(2, 4, "nv12", 4, bytes(8))
    assert caught.value.reason == "short_data"


@pytest.mark.parametrize("encoding", ["16UC1", "32FC1", "16SC1", "64FC1"])
def test_depth_is_refused_by_its_own_reason(encoding):
    with pytest.raises(DataError, match="colour topic") as caught:
        decode_image(2, 4, encoding, 32, bytes(64))
    assert caught.value.reason == "depth_on_colour_input"


@pytest.mark.parametrize("encoding", ["", "foo", "RGB8", "rgb8; compressed"])
def test_unknown_encodings_are_refused_with_the_list(encoding):
    with pytest.raises(DataError, match=r"rgb8, bgr8, .*nv12") as caught:
        decode_image(2, 4, encoding, 12, bytes(24))
    assert caught.value.reason == "unknown_encoding"


@pytest.mark.parametrize(
    ("height", "width", "encoding"),
    [
        (0, 4, "rgb8"),
        (2, 0, "rgb8"),
        (-1, 4, "rgb8"),
        (2, 3, "yuyv"),
        (3, 4, "nv12"),
        (1, 4, "bayer_rggb8"),
    ],
)
def test_impossible_sizes_are_refused(height, width, encoding):
    with pytest.raises(ImageError) as caught:
        decode_image(height, width, encoding, 64, bytes(1024))
    assert caught.value.reason == "bad_size"


@pytest.mark.parametrize("step", [0, 11])
def test_a_step_shorter_than_a_row_is_refused(step):
    with pytest.raises(ImageError, match="at least 12") as caught:
        decode_image(2, 4, "rgb8", step, bytes(1024))
    assert caught.value.reason == "bad_step"


def test_every_kind_of_buffer_is_taken():
    data = SCENE.tobytes()
    buffers = [data, bytearray(data), memoryview(data), array.array("B", data), SCENE.reshape(-1)]
    for buffer in buffers:
        assert (decode_image(2, 4, "rgb8", 12, buffer) == SCENE).all()


@pytest.mark.parametrize("encoding", SUPPORTED_ENCODINGS)
def test_the_picture_does_not_share_the_message_memory(encoding):
    data = bytearray(np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8).tobytes())
    picture = decode_image(4, 4, encoding, 64, data)
    before = picture.copy()
    data[:] = bytes(4096)
    assert picture.shape == (4, 4, 3)
    assert (picture == before).all()
    assert picture.flags.c_contiguous
    assert picture.flags.writeable


def compressed(picture, kind, **options):
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True})])
def test_lossless_files_are_exact(kind, options):
    assert (decode_compressed(compressed(SCENE, kind, **options)) == SCENE).all()


def test_jpeg_is_close_on_flat_areas():
    flat = np.full((32, 48, 3), LEFT, dtype=np.uint8)
    decoded = decode_compressed(array.array("B", compressed(flat, "JPEG", quality=95)))
    assert decoded.shape == (32, 48, 3)
    assert np.abs(decoded.astype(int) - flat).max() <= 4


def test_grey_and_alpha_files_become_rgb():
    grey = np.arange(16, dtype=np.uint8).reshape(4, 4)
    assert (decode_compressed(compressed(grey, "PNG")) == grey[..., None]).all()
    assert (decode_compressed(compressed(with_alpha(SCENE), "PNG")) == SCENE).all()


def test_a_picture_with_too_many_pixels_is_refused_before_unpacking():
    bomb = compressed(np.zeros((100, 101, 3), dtype=np.uint8), "PNG")
    with pytest.raises(ImageError, match="101x100") as caught:
        decode_compressed(bomb, max_pixels=10_000)
    assert caught.value.reason == "too_large"
    assert decode_compressed(bomb, max_pixels=10_100).shape == (100, 101, 3)


def test_a_header_that_claims_a_huge_picture_is_refused():
    # A valid PNG whose header says 60000x60000.
    data = bytearray(compressed(SCENE, "PNG"))
    data[16:24] = (60000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    with pytest.raises(ImageError) as caught:
        decode_compressed(bytes(data))
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_cut_file_is_refused(kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = compressed(noise, kind)
    for size in (0, 10, len(whole) // 2):
        with pytest.raises(ImageError) as caught:
            decode_compressed(whole[:size])
        assert caught.value.reason == "not_an_image"


def test_other_files_are_refused():
    for data in (b"hello", compressed(SCENE, "BMP"), compressed(SCENE, "GIF")):
        with pytest.raises(ImageError, match="JPEG, PNG, WEBP") as caught:
            decode_compressed(data)
        assert caught.value.reason == "not_an_image"


def test_a_compressed_depth_map_is_refused():
    depth = np.full((4, 4), 1500, dtype=np.uint16)
    with pytest.raises(ImageError) as caught:
        decode_compressed(compressed(depth, "PNG"))
    assert caught.value.reason == "depth_on_colour_input"


def test_a_raw_picture_beyond_the_limit_is_refused_before_it_is_converted():
    with pytest.raises(ImageError) as caught:
        decode_image(10_000, 5_001, "rgb8", 15_003, b"")
    assert caught.value.reason == "too_large"
