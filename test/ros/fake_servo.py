"""A consumer with MoveIt Servo's rules for twists; a process of its own, started by tests.

Options: --units speed_units|unitless, --scale LINEAR, --refuse (answers every switch with false),
--status CODE, --unsolvable N (the first N twists have no inverse kinematics).

As the real one it tells its status in every cycle, stays INVALID until the next twist that it can
use, says nothing about a command type that has not been set, and shows its parameters.
"""

import argparse
import math

import rclpy
from geometry_msgs.msg import TwistStamped
from moveit_msgs.msg import ServoStatus
from moveit_msgs.srv import ServoCommandType
from rclpy.node import Node
from ros.scribe import write

PLANNING_FRAME = "base"
TIMEOUT_S = 0.1
SCALE = (0.4, 0.8)


class FakeServo(Node):
    def __init__(self, options):
        super().__init__("servo_node")
        self._options = options
        self._unsolvable = options.unsolvable
        for name, value in (
            ("command_in_type", options.units),
            ("scale.linear", options.scale),
            ("scale.rotational", SCALE[1]),
        ):
            self.declare_parameter(f"moveit_servo.{name}", value)
        self._twists_wanted = False
        self._code = 0
        self._moving_ns = None
        self._status = self.create_publisher(ServoStatus, "~/status", 10)
        self.create_service(ServoCommandType, "~/switch_command_type", self._switch)
        self.create_subscription(TwistStamped, "~/delta_twist_cmds", self._on_twist, 10)
        self.create_timer(0.01, self._watch)
        self.create_timer(0.01, self._tell)
        write("ready")

    def _switch(self, request, response):
        response.success = not self._options.refuse and request.command_type in (0, 1, 2)
        self._twists_wanted = response.success and request.command_type == 1
        write("switch", to=request.command_type, success=response.success)
        return response

    def _on_twist(self, message):
        now_ns = self.get_clock().now().nanoseconds
        age_s = (now_ns - message.header.stamp.sec * 10**9 - message.header.stamp.nanosec) / 1e9
        linear, angular = message.twist.linear, message.twist.angular
        values = [linear.x, linear.y, linear.z, angular.x, angular.y, angular.z]
        why = self._fault(message.header.frame_id, values, age_s)
        if not why and self._unsolvable:
            self._unsolvable -= 1
            why = "unsolvable"
        moving = any(values) and not why
        self._moving_ns = now_ns if moving else None
        if self._twists_wanted:
            self._code = -1 if why else 0
        write("twist", at=now_ns, age_s=age_s, why=why, values=values if not why else [])

    def _fault(self, frame_id, values, age_s):
        speeds = self._options.units == "speed_units"
        largest = (self._options.scale, SCALE[1]) if speeds else (1.0, 1.0)
        checks = (
            ("command_type_not_set", not self._twists_wanted),
            ("empty_frame", not frame_id),
            ("wrong_frame", frame_id != PLANNING_FRAME),
            ("not_finite", not all(map(math.isfinite, values))),
            ("future", age_s < 0.0),
            ("stale", age_s >= TIMEOUT_S),
            ("too_fast", math.hypot(*values[:3]) > largest[0]),
            ("turns_too_fast", math.hypot(*values[3:]) > largest[1]),
        )
        return next((name for name, wrong in checks if wrong), "")

    def _watch(self):
        now_ns = self.get_clock().now().nanoseconds
        if self._moving_ns is not None and now_ns - self._moving_ns > TIMEOUT_S * 1e9:
            self._moving_ns = None
            write("halted_by_timeout", at=now_ns)

    def _tell(self):
        code = self._options.status if self._options.status is not None else self._code
        self._status.publish(ServoStatus(code=code, message=f"code {code}"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", default="speed_units")
    parser.add_argument("--scale", type=float, default=SCALE[0])
    parser.add_argument("--unsolvable", type=int, default=0)
    parser.add_argument("--refuse", action="store_true")
    parser.add_argument("--status", type=int)
    options = parser.parse_args()
    rclpy.init(args=[])
    rclpy.spin(FakeServo(options))


if __name__ == "__main__":
    main()
