"""A gripper controller in a process of its own: `fake_gripper.py OUTPUT [BEHAVIOUR]`.

OUTPUT is a value of gripper.output; BEHAVIOUR of an action: reach, stall, abort, reject, never.
"""

import sys
import threading

import rclpy
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from ros.scribe import write


class TopicGripper(Node):
    def __init__(self, output):
        super().__init__("gripper_controller")
        if output == "float64_multi_array":
            from std_msgs.msg import Float64MultiArray

            self.create_subscription(Float64MultiArray, "~/commands", self._on_array, 10)
        else:
            from trajectory_msgs.msg import JointTrajectory

            topic = "~/joint_trajectory"
            self.create_subscription(JointTrajectory, topic, self._on_trajectory, 10)
        write("ready")

    def _on_array(self, message):
        write("position", values=list(message.data))

    def _on_trajectory(self, message):
        (point,) = message.points
        end = point.time_from_start
        seconds = end.sec + end.nanosec * 1e-9
        write("position", joints=message.joint_names, values=list(point.positions), s=seconds)


class ActionGripper(Node):
    def __init__(self, output, behaviour):
        super().__init__("gripper_controller")
        from control_msgs import action

        self._parallel = output == "parallel_gripper_action"
        self._behaviour = behaviour
        self._outstanding = 0
        self._forever = threading.Event()
        kind = action.ParallelGripperCommand if self._parallel else action.GripperCommand
        self._kind = kind
        self._server = ActionServer(
            self,
            kind,
            "~/gripper_cmd",
            self._execute,
            goal_callback=self._on_goal,
            cancel_callback=self._on_cancel,
            callback_group=ReentrantCallbackGroup(),
        )
        write("ready")

    def _on_goal(self, goal):
        command = goal.command
        if self._parallel:
            fields = {"joints": list(command.name), "values": list(command.position)}
            fields["effort"] = list(command.effort)
        else:
            fields = {"values": [command.position], "effort": [command.max_effort]}
        write("goal", outstanding=self._outstanding, **fields)
        return GoalResponse.REJECT if self._behaviour == "reject" else GoalResponse.ACCEPT

    def _on_cancel(self, handle):
        write("cancel")
        return CancelResponse.REJECT  # a controller that goes on

    def _execute(self, handle):
        write("executing")
        self._outstanding += 1
        if self._behaviour == "never":
            self._forever.wait(20.0)
        self._outstanding -= 1
        stalled = self._behaviour == "stall"
        result = self._kind.Result(stalled=stalled, reached_goal=self._behaviour == "reach")
        if self._behaviour in ("stall", "abort"):
            handle.abort()  # what a controller without allow_stalling does
        else:
            handle.succeed()
        write("result", stalled=stalled)
        return result


def main():
    output, behaviour = sys.argv[1], (sys.argv[2:] or ["reach"])[0]
    rclpy.init(args=[])
    by_action = output.endswith("_action")
    node = ActionGripper(output, behaviour) if by_action else TopicGripper(output)
    executor = MultiThreadedExecutor(4)
    executor.add_node(node)
    executor.spin()


if __name__ == "__main__":
    main()
