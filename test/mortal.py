"""A program that is killed at a chosen moment while it writes a store."""

KILLED_AT = """
import os, signal, sys
from heisd_ros.demonstrations import array_file, writer

countdown = int(sys.argv[2])

def mortal(function):
    def wrapped(*arguments, **options):
        global countdown
        countdown -= 1
        if countdown < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return wrapped

# Every step that touches the disk may be the last one.
array_file.ArrayFile.write = mortal(array_file.ArrayFile.write)
os.fsync = mortal(os.fsync)
writer.sync_folder = mortal(writer.sync_folder)
writer.Path.rename = mortal(writer.Path.rename)
writer.Path.replace = mortal(writer.Path.replace)
"""
"""Beginning of such a program: argument 1 is the store, 2 the number of steps on disk it lives."""
