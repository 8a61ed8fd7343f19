"""`python -m mmcache.scale.local FOLDER`: the supervisor of a cluster's folder."""

import sys

from mmcache.scale.local.supervisor import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
