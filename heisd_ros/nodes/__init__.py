"""ROS 2 nodes: convert in, call one method, convert out (the only room that imports rclpy)."""
