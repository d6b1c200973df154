from types import SimpleNamespace

import pytest

from heisd_ros.errors import DataError
from heisd_ros.nodes.identity import check_encoder, fingerprint, policy_fingerprint


def test_fingerprint_is_that_of_the_model_or_empty():
    target = SimpleNamespace(info=SimpleNamespace(fingerprint="abc"))
    policy = SimpleNamespace(decoder=SimpleNamespace(target=target))
    assert fingerprint(target) == policy_fingerprint(policy) == "abc"
    assert fingerprint(object()) == policy_fingerprint(object()) == ""


def test_features_of_another_encoder_are_refused():
    with pytest.raises(DataError, match="abc"):
        check_encoder("abc", "def")
    check_encoder("abc", "abc")
    check_encoder("", "def")  # an encoder that does not tell
    check_encoder("abc", "")
