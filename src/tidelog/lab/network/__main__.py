"""`python -P -m tidelog.lab.network FOLDER [--tied]`; whoever starts one uses `LabNetwork`."""

import sys

from tidelog.lab.network.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
