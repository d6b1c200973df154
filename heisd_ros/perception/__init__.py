"""Camera messages to pictures, pictures to sets, features to the retrieval embedding."""

from heisd_ros.perception.embedding import EMBEDDING_SIZE, join_views

__all__ = ["EMBEDDING_SIZE", "join_views"]
