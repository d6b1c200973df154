"""The concrete classes behind each part of the configuration; `heisd_ros.build` joins them."""
