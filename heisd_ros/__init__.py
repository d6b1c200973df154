"""HeiSD for ROS 2: hybrid speculative decoding of vision-language-action models."""

from pkgutil import extend_path

# Run from a checkout, the source modules win and heisd_ros.msg comes from the installed copy.
__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
