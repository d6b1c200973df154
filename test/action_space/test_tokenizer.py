import numpy as np
import pytest

from heisd_ros.action_space import ActionTokenizer
from heisd_ros.errors import ConfigError, DataError

TOKENIZER = ActionTokenizer()


@pytest.mark.parametrize(
    ("value", "token", "decoded"),
    [
        (-1.0, 31999, -0.99608),
        (-0.5, 31936, -0.50196),
        (0.0, 31872, 0.0),
        (0.25, 31840, 0.25098),
        (0.5, 31808, 0.50196),
        (1.0, 31744, 0.99608),
    ],
)
def test_reference_values(value, token, decoded):
    assert int(TOKENIZER.encode(value)) == token
    assert float(TOKENIZER.decode(token)) == pytest.approx(decoded, abs=5e-6)


def test_one_gets_its_own_id_not_the_nearest_centre():
    # 1.0 and the outermost centre 254/255 share that centre but not the id.
    assert TOKENIZER.encode([1.0, 254.0 / 255.0]).tolist() == [31744, 31745]
    assert TOKENIZER.decode([31744])[0] == TOKENIZER.decode([31745])[0]


def test_decode_undoes_encode_within_half_a_bin():
    values = np.random.default_rng(0).uniform(-1.0, 1.0, (500, 7))
    error = np.abs(TOKENIZER.decode(TOKENIZER.encode(values)) - values)
    assert error.max() <= 1.0 / 255.0 + 1e-12  # bins are 2/255 wide
    assert error.max() > 0.0038


def test_encode_undoes_decode_for_every_id_but_the_shared_one():
    ids = np.arange(31745, 32000)
    assert (TOKENIZER.encode(TOKENIZER.decode(ids)) == ids).all()


def test_values_beyond_the_range_are_clipped():
    assert TOKENIZER.encode([-1.2, 1e300]).tolist() == [31999, 31744]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(DataError, match="finite"):
        TOKENIZER.encode([0.0, value])


@pytest.mark.parametrize("token", [31743, 32000, 0, -1, 32063])
def test_other_ids_are_refused_never_clipped(token):
    with pytest.raises(DataError, match=str(token)):
        TOKENIZER.decode([31872, token])


def test_is_action_knows_exactly_256_ids():
    ids = np.arange(32064)
    assert np.flatnonzero(TOKENIZER.is_action(ids)).tolist() == list(range(31744, 32000))


def test_ids_must_be_integers():
    with pytest.raises(DataError, match="integers"):
        TOKENIZER.decode([31872.0])


def test_shape_is_kept():
    assert TOKENIZER.encode(np.zeros((4, 5, 7))).shape == (4, 5, 7)
    assert TOKENIZER.encode([]).shape == (0,)


def test_another_vocabulary_moves_the_ids():
    tokenizer = ActionTokenizer(vocab_size=500)
    assert tokenizer.encode([-1.0, 1.0]).tolist() == [499, 244]


@pytest.mark.parametrize("bins", [1, 501])
def test_bins_must_fit_the_vocabulary(bins):
    with pytest.raises(ConfigError, match="n_bins"):
        ActionTokenizer(vocab_size=500, n_bins=bins)


def test_tables_of_the_reference_implementation(golden_folder):
    with np.load(golden_folder / "golden_openvla_tiny.npz") as golden:
        assert (TOKENIZER.encode(golden["tok_actions"]) == golden["tok_ids"]).all()
        # The reference clips foreign ids; ours refuses them, so only the 256 real ones compare.
        ids, expected = golden["detok_ids"], golden["detok_norm"]
        real = TOKENIZER.is_action(ids)
        assert real.sum() == 256
        assert TOKENIZER.decode(ids[real]) == pytest.approx(expected[real], abs=1e-15)
