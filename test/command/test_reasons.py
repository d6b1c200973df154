"""The enumeration of the code is the one on the wire."""

import re

from heisd_ros.command import GuardReason, Reason
from heisd_ros.share import share_dir

MESSAGE = share_dir() / "msg" / "Reason.msg"


def test_the_message_lists_every_reason_with_its_word():
    listed = dict(re.findall(r'^string (\w+)="(\w+)"', MESSAGE.read_text(), re.MULTILINE))
    assert listed == {reason.name: reason.value for reason in Reason}


def test_names_and_words_agree_and_no_word_is_used_twice():
    assert all(reason.value == reason.name.lower() for reason in Reason)
    assert len({reason.value for reason in Reason}) == len(Reason)


def test_the_old_name_still_works():
    assert GuardReason is Reason
