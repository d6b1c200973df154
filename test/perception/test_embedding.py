import numpy as np
import pytest

from heisd_ros.errors import ConfigError, DataError, ShapeError
from heisd_ros.perception import EMBEDDING_SIZE, join_views


def test_every_block_gets_the_same_weight():
    # 3-4-5 triangle: (0.6, 0.8) and (1,), both over sqrt(2).
    joined = join_views([np.array([300.0, 400.0]), np.array([0.001])])
    assert joined == pytest.approx(np.array([0.6, 0.8, 1.0]) / np.sqrt(2.0))
    assert joined.dtype == np.float32


def test_the_whole_vector_keeps_the_weights_of_its_blocks():
    # (3, 4, 12) has norm 13: a tower with large features rules the cosine.
    joined = join_views([np.array([3.0, 4.0]), np.array([12.0])], normalise="whole")
    assert joined == pytest.approx(np.array([3.0, 4.0, 12.0]) / 13.0)
    assert joined.dtype == np.float32


def test_an_unknown_normalisation_is_refused():
    with pytest.raises(ConfigError, match="blocks, whole; got 'rows'"):
        join_views([np.ones(3)], normalise="rows")


def test_two_views_of_openvla_give_one_unit_vector():
    rng = np.random.default_rng(0)
    joined = join_views([rng.normal(size=size) for size in (1024, 1152, 1024, 1152)])
    assert joined.shape == (EMBEDDING_SIZE,)
    assert np.linalg.norm(joined) == pytest.approx(1.0, abs=1e-6)
    assert np.linalg.norm(joined[:1024]) == pytest.approx(0.5, abs=1e-6)


def test_cosine_is_the_mean_of_the_block_cosines():
    rng = np.random.default_rng(1)
    first, second = ([rng.normal(size=size) for size in (5, 9, 4)] for _ in range(2))
    cosines = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(first, second, strict=True)
    ]
    assert join_views(first) @ join_views(second) == pytest.approx(np.mean(cosines), abs=1e-6)


@pytest.mark.parametrize("normalise", ["blocks", "whole"])
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_broken_block_is_refused_by_number(bad, normalise):
    with pytest.raises(DataError, match="block 1"):
        join_views([np.ones(3), np.full(4, bad)], normalise=normalise)


@pytest.mark.parametrize("blocks", [[], [np.ones((2, 3))], [np.ones(0)]])
def test_blocks_must_be_vectors(blocks):
    with pytest.raises(ShapeError):
        join_views(blocks)
