"""The kinematic metric of the last w end-effector positions (HeiSD Eq. 4-8)."""
