"""python peak.py COMMAND...: the most resident memory that a program ever had, in KiB. Its own output is thrown away."""

import resource
import subprocess
import sys

status = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
