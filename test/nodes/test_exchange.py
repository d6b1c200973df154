import numpy as np

from heisd_ros.nodes.exchange import FeatureExchange
from heisd_ros.types import VisualFeatures


def features(stamp_ns):
    return VisualFeatures(np.zeros((1, 1, 1)), np.zeros(1, np.float32), stamp_ns)


def test_features_are_taken_once_by_their_stamp():
    exchange = FeatureExchange()
    kept = features(5)
    exchange.put(5, kept)
    assert exchange.take(4) is None
    assert exchange.take(5) is kept
    assert exchange.take(5) is None


def test_the_oldest_are_forgotten_first():
    exchange = FeatureExchange(capacity=2)
    for stamp_ns in (1, 2, 3):
        exchange.put(stamp_ns, features(stamp_ns))
    assert len(exchange) == 2
    assert exchange.take(1) is None
    assert exchange.take(3).stamp_ns == 3
