import pytest

from heisd_ros.action_space import DOF_NAMES, SEQUENCE_SLICES, Sequence, sequence_of


def test_sequences_cover_every_degree_of_freedom_once():
    covered = [dof for part in SEQUENCE_SLICES.values() for dof in range(7)[part]]
    assert covered == list(range(7))
    assert len(DOF_NAMES) == 7


def test_names_lie_in_their_sequence():
    assert DOF_NAMES[SEQUENCE_SLICES[Sequence.POSITION]] == ("x", "y", "z")
    assert DOF_NAMES[SEQUENCE_SLICES[Sequence.ROTATION]] == ("rx", "ry", "rz")
    assert DOF_NAMES[SEQUENCE_SLICES[Sequence.GRIPPER]] == ("gripper",)


def test_sequence_of_a_degree_of_freedom():
    assert [sequence_of(dof) for dof in range(7)] == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize("dof", [-1, 7])
def test_no_sequence_outside_the_action(dof):
    with pytest.raises(IndexError, match=r"0\.\.6"):
        sequence_of(dof)
