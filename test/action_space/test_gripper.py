import pytest

from heisd_ros.action_space import (
    ActionTokenizer,
    GripperState,
    from_convention,
    libero_to_model,
    model_to_libero,
    state_of,
    state_of_token,
    to_convention,
)
from heisd_ros.errors import ConfigError, DataError

TRUTH_TABLE = [
    # convention, open, closed
    ("open_is_one", 1.0, 0.0),
    ("minus_one_open", -1.0, 1.0),
    ("position_m", 0.08, 0.0),
]


@pytest.mark.parametrize(("convention", "opened", "closed"), TRUTH_TABLE)
def test_truth_table_both_ways(convention, opened, closed):
    assert to_convention(1.0, convention) == opened
    assert to_convention(0.0, convention) == closed
    assert from_convention(opened, convention) == 1.0
    assert from_convention(closed, convention) == 0.0


@pytest.mark.parametrize("convention", [row[0] for row in TRUTH_TABLE])
def test_conventions_are_inverses_in_between(convention):
    assert from_convention(to_convention(0.3, convention), convention) == pytest.approx(0.3)


def test_another_hand_opens_wider():
    assert to_convention(1.0, "position_m", max_opening_m=0.14) == 0.14


def test_measured_values_beyond_the_ends_are_clipped():
    assert from_convention(0.081, "position_m") == 1.0
    assert from_convention(1.2, "minus_one_open") == 0.0


def test_an_unknown_convention_is_refused_with_the_list():
    with pytest.raises(ConfigError, match="open_is_one, minus_one_open, position_m"):
        to_convention(1.0, "one_is_closed")


@pytest.mark.parametrize("opening", [-0.1, 1.1, float("nan")])
def test_an_impossible_opening_is_refused(opening):
    with pytest.raises(DataError, match="opening"):
        to_convention(opening, "open_is_one")


def test_a_measurement_that_is_not_finite_is_refused():
    with pytest.raises(DataError, match="finite"):
        from_convention(float("inf"), "position_m")


@pytest.mark.parametrize(
    ("raw", "model", "token"), [(-1.0, 1.0, 31744), (1.0, 0.0, 31872), (0.0, 1.0, 31744)]
)
def test_libero_demonstrations_become_model_tokens(raw, model, token):
    assert libero_to_model(raw) == model
    assert int(ActionTokenizer().encode(libero_to_model(raw))) == token


@pytest.mark.parametrize(("model", "environment"), [(0.99608, -1.0), (0.0, 1.0), (0.5, 0.0)])
def test_model_values_become_environment_actions(model, environment):
    assert model_to_libero(model) == environment


@pytest.mark.parametrize("raw", [-1.0, 1.0])
def test_raw_to_model_to_environment_gives_the_raw_action_back(raw):
    assert model_to_libero(libero_to_model(raw)) == raw


def test_state_of_a_value():
    assert state_of(0.996) is GripperState.OPEN
    assert state_of(0.004) is GripperState.CLOSED
    assert state_of(-0.996) is GripperState.CLOSED


@pytest.mark.parametrize("previous", [None, GripperState.OPEN, GripperState.CLOSED])
def test_exactly_one_half_keeps_the_state(previous):
    assert state_of(0.5, previous) is previous


def test_state_of_nan_is_refused():
    with pytest.raises(DataError, match="finite"):
        state_of(float("nan"))


def test_the_state_flips_between_31808_and_31809():
    states = [state_of_token(token) for token in range(31744, 32000)]
    assert states == [GripperState.OPEN] * 65 + [GripperState.CLOSED] * 191
    assert state_of_token(31808) is GripperState.OPEN
    assert state_of_token(31809) is GripperState.CLOSED
